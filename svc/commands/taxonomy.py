"""`trace-svc taxonomy import FILE`: failure modes, chains, packs and call sites' intents and output schemas.

YAML or JSON (which is YAML as well), checked whole before anything is written. The file replaces what was
there, so importing it twice is the same as once.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from protocol.operator import OperatorError
from protocol.taxonomy import BadTaxonomy, Taxonomy
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_json
from svc.config.table import Settings
from svc.domain.taxonomy_file import taxonomy_of
from svc.store.detection.taxonomy import TaxonomyStore

MAX_FILE_BYTES: Final = 8 * 1024 * 1024

HELP: Final = """\
The file is YAML or JSON with up to four lists; the import replaces the project's taxonomy by them.

  packs:                      # id, name; version, description
    - {id: support, name: Support desk}
  chains:                     # id, name; description, call_site_ids
    - {id: answer, name: Answer a question, call_site_ids: [retrieve, reply]}
  call_sites:                 # id, intent; shape, output_schema (a JSON Schema of what it should answer)
    - id: reply
      intent: Answers the customer
      shape: chat
      output_schema: {type: object, required: [answer], properties: {answer: {type: string}}}
  failure_modes:              # id, name, severity, scope, layer; description, call_site_id, chain_id,
    - id: invented-order      # pack_id, compliance_tags
      name: Invents an order
      severity: high          # low, medium, high
      scope: single_call      # single_call, chain, trace
      layer: A                # A, B, C
      call_site_id: reply
      pack_id: support
      compliance_tags: [accuracy]
"""


def read_file(path: Path) -> Taxonomy:
    """The taxonomy in a file. Raises `BadTaxonomy`, and `OSError` when the file cannot be read."""
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise BadTaxonomy(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return taxonomy_of(raw, aliases=True)
    except BadTaxonomy as bad:
        raise BadTaxonomy(f"{path}: {bad}") from None


def add(parser: argparse.ArgumentParser) -> None:
    """The one verb and its arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    importing = verbs.add_parser(
        "import",
        help="replace the taxonomy of a project with a file",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importing.add_argument("file", type=Path, help="YAML or JSON")
    name_project(importing)
    offer_json(importing)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Import the file and say what is there now. Raises `OperatorError` for a file that cannot be used."""
    try:
        taxonomy = read_file(arguments.file)
    except BadTaxonomy as bad:
        raise OperatorError(str(bad)) from None
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        await TaxonomyStore(store.database).replace(project.id, taxonomy)
    counts = {name: len(getattr(taxonomy, name)) for name in Taxonomy.__struct_fields__}
    if arguments.json:
        print_json({"project": f"{project.org_slug}/{project.slug}"} | counts)
        return
    listed = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    print(f"{project.org_slug}/{project.slug} now has {listed}")
