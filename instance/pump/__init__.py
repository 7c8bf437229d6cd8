"""What a pump of TiDB keeps, and how it puts transactions in order."""
