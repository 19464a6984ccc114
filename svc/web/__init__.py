"""The web pages: rendered on the server, improved by plain ES modules, in the process of the API.

A room holds the pages of one noun: page, view, text and template together. Rooms import each other in one
direction (`STAGES` in tests/house.py), and all of them `shell`.

To add a page:

1. A file in its room: `async def name(visit: Visit) -> Html | Go | Sent | Download | Refusal`, which reads by
   store functions (never over HTTP) and returns the template with its context; and its lines in the file's
   `PAGES`: `PageRoute("GET", PROJECT + "/things", "ORG_VIEW", things)`. A form is a line with "POST" and
   `form=` its class; its answer is a `Go` (303) or the page again with what was wrong.
2. The file is added to `PAGES` in the room's `__init__`.
3. Its template beside it, extending `shell/frame.html`, which frames what is inside a project and
   leaves bare what is not; the page fills the blocks `title` and `main`. Macros that pages share are in
   `shell/macros.html`. Every value is escaped; invisible characters show as marks.
4. What it does beside links and forms is a module in `static/`, exporting `start(root)`, started for each
   element with `data-module="its name"`. All of them reach a page as one file (`svc/web/shell/assets.py`).

A fragment is a page with `Html(..., part=True)`: its template stands alone and shares the page's macros.
"""
