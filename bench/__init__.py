"""Measurements of each stage apart, on real data: `python -m bench --help`.

* Measurements: `acks`, `canal`, `captures`, `deliver`, `failover`, `kafka`, `latency`, `memory`, `peers`, `scale`,
  `spark` and `stages`.
  `everything` runs most of them, `report` writes the page, `compare` names what changed between two results.
* Processes that they start: `beats`, `client`, `dump`, `load`, `pace`, `recorded`, `replay`, `spark_query`, `stage`,
  `subscribers`, `taker`.
* What they share: `environment`, `measuring`, `processes`, `sources`, `spark_sources`, `workloads`.
"""
