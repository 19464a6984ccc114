"""What an address looks like: two addresses that share a likeness cannot be told apart by eye.

Pure; asked when an account is made or invited. Owns the table of letters of other scripts that look like
Latin ones. Letters that belong to one alphabet are never confused here (`l` and `1`, `o` and `0`, `e` and
`é`): people do have such addresses.
"""

from __future__ import annotations

import unicodedata
from typing import Final

#: Letters and the Latin ones that they look like, after the confusables of Unicode's technical standard 39.
#: Fullwidth, mathematical and enclosed letters are Latin ones already in the compatible form (NFKC).
_PAIRS: Final = (
    # Cyrillic, small: a b c d e h i j k l m o p q r s t v w x y y
    (
        "\u0430\u044c\u0441\u0501\u0435\u04bb\u0456\u0458\u043a\u04cf\u043c"
        "\u043e\u0440\u051b\u0433\u0455\u0442\u0475\u051d\u0445\u0443\u04af",
        "abcdehijklmopqrstvwxyy",
    ),
    # Cyrillic, capital: A B C E G H I I J K M O P Q S T V W X Y Y
    (
        "\u0410\u0412\u0421\u0415\u050c\u041d\u0406\u04c0\u0408\u041a\u041c"
        "\u041e\u0420\u051a\u0405\u0422\u0474\u051c\u0425\u0423\u04ae",
        "ABCEGHIIJKMOPQSTVWXYY",
    ),
    # Greek, small: a i j k n o o p t u v w x y
    (
        "\u03b1\u03b9\u03f3\u03ba\u03b7\u03bf\u03c3\u03c1\u03c4\u03c5\u03bd\u03c9\u03c7\u03b3",
        "aijknooptuvwxy",
    ),
    # Greek, capital: A B E H I J K M N O P T X Y Z
    (
        "\u0391\u0392\u0395\u0397\u0399\u037f\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a7\u03a5\u0396",
        "ABEHIJKMNOPTXYZ",
    ),
    # Armenian, small: g h j n o q u
    ("\u0581\u0570\u0575\u0578\u0585\u0566\u057d", "ghjnoqu"),
    # Latin letters of phonetic and older alphabets: a b g i i y s v w
    ("\u0251\u0185\u0261\u0131\u0269\u028f\ua731\u1d20\u1d21", "abgiiysvw"),
)
_LOOKS: Final = {
    ord(letter): latin for letters, looks in _PAIRS for letter, latin in zip(letters, looks, strict=True)
}


def likenesses(email: str) -> list[str]:
    """How an address looks as it was written and in small letters, which differ for some alphabets."""
    return sorted({_look(email), _look(email.lower())})


def _look(text: str) -> str:
    compatible = unicodedata.normalize("NFKC", text)
    # A mark that has found no letter to merge with (a dot above an i) is hardly seen.
    visible = "".join(letter for letter in compatible if unicodedata.category(letter) != "Mn")
    return visible.translate(_LOOKS).lower()
