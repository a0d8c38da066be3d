"""What commands print: tables and progress."""
