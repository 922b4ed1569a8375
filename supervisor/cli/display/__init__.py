"""What commands print: trees, tables, reports and terminal handling."""
