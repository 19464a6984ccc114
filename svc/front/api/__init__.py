"""`/api/**` and `/auth/*`: one table of routes, from which everything about them comes.

To add a route:

1. Its body and its answer are `msgspec.Struct` classes in `protocol/` (bodies with `forbid_unknown_fields`;
   instants typed `protocol.rest.accounts.Instant` and written with `protocol.rest.query.timestamp`).
2. Its handler is `async def name(call: Call[Body]) -> Data | Refusal` in a file of one of the folders here,
   which have the names of the pages. The caller is known and permitted by then: `call.caller`, `call.org`,
   `call.project` (looked up from the path), `call.path` (other placeholders), `call.body`, `call.query`;
   `call.means` holds the database, the settings and the clock. Return the answer, an `ApiReply` (another
   status, cookies), or a `Refusal` from `protocol/refusals.py`; a refusal may also be raised as `Refused`.
   `Outage` and `StoreRefused` may pass.
3. A line in the file's `ROUTES`: `Route("PUT", PROJECT + "/things", "ORG_ADMIN", put_things, body=Things,
   data=Things, refusals=(THING_TAKEN,))`. `PROJECT` and `ORG` are the path prefixes. The docstring of the
   handler is its summary in the documentation, so it speaks to users.
4. A new file is added to `table.py`. Writes record an audit row in their own transaction: `record` of
   `svc/store/accounts/audit.py`, with `call.caller.label` as the actor.

The machinery (`routes.py`) does the rest: 401, 403, 404 and 400 in this order, the origin rule, the envelope.
"""
