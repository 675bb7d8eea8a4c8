"""HTTP: routing by the document, checking of bodies, keys, errors and streams."""
