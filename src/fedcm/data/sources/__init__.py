"""One module per kind of data source; `fedcm.data.load_source` chooses among them."""
