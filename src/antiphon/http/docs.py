"""The API reference: one HTML page that needs nothing but itself.

Redoc (2.5, MIT) draws it; its script is carried in the package, as a reference that needs a network
is of no use beside a model that does not.
"""

from importlib import resources

import orjson

from antiphon.spec.contract import Document

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%(title)s: API reference</title>
<link rel="icon" href="data:,">
<style>body { margin: 0; padding: 0; }</style>
</head>
<body>
<div id="reference"></div>
<noscript>This page needs JavaScript. The document itself is at /openapi.yaml.</noscript>
<script>%(redoc)s</script>
<script>
Redoc.init(%(document)s, %(options)s, document.getElementById("reference"));
</script>
</body>
</html>
"""

_OPTIONS = {
    "hideDownloadButton": True,
    "jsonSamplesExpandLevel": 4,
    "requiredPropsFirst": True,
    "sortTagsAlphabetically": False,
    "theme": {
        "sidebar": {"width": "280px"},
        "typography": {"fontFamily": "system-ui, sans-serif", "fontSize": "15px",
                       "headings": {"fontFamily": "system-ui, sans-serif"},
                       "code": {"fontFamily": "ui-monospace, monospace"}},
    },
}  # fmt: skip

# The one thing Redoc would load from elsewhere.
_REMOTE_LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg"


def docs_page(document: Document) -> str:
    """The reference of `document` as a page that works from a file, too."""
    script = resources.files("antiphon.http").joinpath("static/redoc.standalone.js")
    return _PAGE % {
        "title": document["info"]["title"],
        "redoc": script.read_text(encoding="utf-8").replace(_REMOTE_LOGO, "data:,"),
        "document": _inline(document),
        "options": _inline(_OPTIONS),
    }


def _inline(value: object) -> str:
    """JSON that can stand in a script element."""
    return orjson.dumps(value).decode().replace("</", "<\\/")
