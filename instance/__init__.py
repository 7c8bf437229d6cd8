"""One destination: its source, filters, conditions, values, what serves its clients, and what is stored of them."""
