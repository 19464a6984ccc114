"""What a model wrote as Markdown becomes elements, and nothing else."""

from __future__ import annotations

from tests.browser.conftest import BASE, Opened

DRAW = """async (text) => {
  const main = document.querySelector('script[type=module]').src;
  const { blocks } = await import(main.replace('modules.js', 'markdown.js'));
  const host = document.createElement('div');
  host.append(...blocks(text));
  return host.innerHTML;
}"""


def drawn(opened: Opened, *texts: str) -> list[str]:
    """The elements of each text."""
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/traces"))
        return [page.evaluate(DRAW, text) for text in texts]


def table(heading: str, *rows: str) -> str:
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heading.split(" ; "))
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.split(' ; '))}</tr>" for row in rows)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def test_a_table_is_drawn_as_one_and_ends_where_its_bars_end(opened: Opened) -> None:
    text = (
        "Sales:\n| Quarter | Sum |\n| --- | ---: |\n| Q1 | **4** |\n| a\\|b |\n| c | d | left out |\nAfter."
    )
    bare = "a | b\n-|-\n1 | 2\n\nNext"
    assert drawn(opened, text, bare) == [
        f"<p>Sales:</p>{table('Quarter ; Sum', 'Q1 ; <b>4</b>', 'a|b ; ', 'c ; d')}<p>After.</p>",
        f"{table('a ; b', '1 ; 2')}<p>Next</p>",
    ]


def test_what_only_looks_like_a_table_stays_text(opened: Opened) -> None:
    wide = f"{'a|' * 31}\n{'-|' * 31}"
    dashes = f"a | b\n-{' ' * 15_000}x"
    text, many, long = drawn(opened, "either | or\nand so on", wide, dashes)
    assert text == "<p>either | or\nand so on</p>"
    assert "<table>" not in many
    assert "<table>" not in long


def test_a_cell_runs_nothing(opened: Opened) -> None:
    (hostile,) = drawn(opened, "| a |\n| - |\n| <img src=x onerror=alert(1)> |")
    assert hostile == table("a", "&lt;img src=x onerror=alert(1)&gt;")
