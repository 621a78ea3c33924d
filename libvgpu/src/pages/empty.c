int gaia_pages_placeholder;
