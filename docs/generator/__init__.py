"""Programs that build the site: the hooks of MkDocs and the generated reference pages."""
