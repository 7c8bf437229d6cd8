"""A topic of TiCDC as a source: how TiDB from 7.5 on is read."""
