"""The spawn page: what is shown (`view`), and the HTML for it (`render`)."""
