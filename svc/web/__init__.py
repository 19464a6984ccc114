"""The web pages: rendered on the server, improved by plain ES modules, in the process of the API.

To add a page:

1. A file in `pages/`: `async def name(visit: Visit) -> Html | Go | Sent | Refusal`, which reads by store
   functions (never over HTTP) and returns the template with its context; and its lines in the file's
   `PAGES`: `PageRoute("GET", PROJECT + "/things", "ORG_VIEW", things)`. A form is a line with "POST" and
   `form=` its class; its answer is a `Go` (303) or the page again with what was wrong.
2. The file is added to `table.py`.
3. Its template in `templates/pages/`, extending `frame.html`, which frames what is inside a project and
   leaves bare what is not; the page fills the blocks `title` and `main`. Parts that pages share are macros in
   `templates/parts/macros.html`. Every value is escaped; invisible characters show as marks.
4. What it does beside links and forms is a module in `static/`, exporting `start(root)`, started for each
   element with `data-module="its name"`; the page names it in `Html.modules`, so that it is fetched early.

A fragment is a page with `Html(..., part=True)`: its template stands alone and shares the page's macros.
"""
