"""``/docs``: Swagger UI on the OpenAPI document. The page and all it loads come from this server."""

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles

PAGE = "/docs"
ASSETS = "/docs/assets"


def install(app: FastAPI) -> None:
    """Serve the page, and its assets from the package fastapi-offline. Its URLs are relative, for proxies."""
    page = get_swagger_ui_html(
        title=app.title,
        openapi_url=str(app.openapi_url).lstrip("/"),
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js".lstrip("/"),
        swagger_css_url=f"{ASSETS}/swagger-ui.css".lstrip("/"),
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None, "displayRequestDuration": True},
    )
    html = bytes(page.body)
    headers = {
        "Content-Security-Policy": policy(html),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    @app.get(PAGE, include_in_schema=False)
    async def docs() -> Response:
        return Response(html, headers=headers, media_type="text/html; charset=utf-8")

    app.mount(ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")), "assets")


def policy(html: bytes) -> str:
    """Return a Content-Security-Policy by which the page loads from, and calls, its own server only.

    Its inline script is allowed by the hash; Swagger UI sets styles on elements, and has icons as ``data:``.
    """
    (script,) = re.findall(rb"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
