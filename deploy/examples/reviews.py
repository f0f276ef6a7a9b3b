"""What the plan in ``reviews.json`` is made of: plain functions on text, and one delegate.

    acts run deploy/examples/reviews.json --activities deploy/examples/reviews.py

A function decorated with ``@activity`` becomes a tool of the same name, its parameters and their types the
tool's schema. It knows nothing of runs, instances or queues: references are resolved before it is called, and
what it returns goes where the call's ``_outputPath`` says. A delegate sees what ``_scopes`` let by.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acts_celery import Output, activity, delegate

log = logging.getLogger(__name__)

TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"\w+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Lexicon:
    """What the shop knows of a language: small words, the beginnings of words that judge, and two letters."""

    small: frozenset[str]
    praise: tuple[str, ...]
    complaint: tuple[str, ...]
    thanks: str
    apology: str


@activity
def clean_text(text: str) -> str:
    """Take the markup and the stray white space out of what a customer typed."""
    return " ".join(html.unescape(TAG.sub(" ", text)).split())


@activity
def split_sentences(text: str) -> list[str]:
    """Cut a text after each full stop, exclamation mark and question mark."""
    return SENTENCE_END.split(re.sub(r"\s+([!?])", r"\1", text))


@activity
def detect_language(text: str) -> str:
    """Name the language whose small words are the most frequent in the text."""
    words = words_of(text)
    return max(LEXICONS, key=lambda language: sum(word in LEXICONS[language].small for word in words))


@activity
def find_keywords(text: str, language: str, limit: int = 3) -> list[str]:
    """Give the most frequent words that carry a meaning; of equally frequent ones, those that come first."""
    return [word for word, _ in Counter(telling_words(text, language)).most_common(limit)]


@activity
def judge(text: str, language: str) -> Output:
    """Decide whether the customer is happy, and write the verdict where that branch of the plan reads it."""
    words = words_of(text)
    praise = [word for word in words if word.startswith(LEXICONS[language].praise)]
    complaint = [word for word in words if word.startswith(LEXICONS[language].complaint)]
    if len(praise) >= len(complaint):
        return Output("†state.verdict.praise", {"because": praise})
    return Output("†state.verdict.complaint", {"because": complaint})


@activity
def thank(name: str, language: str, because: list[str]) -> str:
    """Write to a happy customer. Runs only where ``judge`` chose praise; elsewhere the call is skipped."""
    return LEXICONS[language].thanks.format(name=name, words=", ".join(because))


@activity
def apologise(name: str, language: str, because: list[str]) -> str:
    """Write to an unhappy customer. Runs only where ``judge`` chose complaint."""
    return LEXICONS[language].apology.format(name=name, words=", ".join(because))


@activity
def rate_urgency(because: list[str], tags: list[str]) -> str:
    """Give a complaint one more tag; the call's ``_outputMethod`` pushes it onto those that are there."""
    return "urgent" if set(because) & set(tags) else "normal"


@activity
def notify_support(email: str, because: list[str]) -> None:
    """Put a complaint into the outbox. The call has no ``_outputPath``: it is sent, and no call waits for it.

    The outbox is the file ``REVIEWS_OUTBOX`` names, one JSON line a complaint; without one, the worker's log.
    """
    outbox = os.environ.get("REVIEWS_OUTBOX")
    if outbox is None:
        log.warning("a complaint: %s", ", ".join(because))
        return
    with Path(outbox).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"from": email, "because": because}, ensure_ascii=False) + "\n")


@delegate("summarizer")
def summarizer(context: list[dict[str, Any]]) -> dict[str, Any]:
    """Keep the sentences whose words are the most frequent in the review, in their own order.

    It runs in a clean room: ``context`` holds the slices that the call's ``_scopes`` let by, then the call's
    parameters, and nothing else. ``knew`` in the result shows it: no customer, no e-mail, no other review.
    """
    known = {name: value for message in context for name, value in message.items() if name != "type"}
    sentences: list[str] = known["review"]["sentences"]
    frequency = Counter(telling_words(" ".join(sentences), known["language"]))

    def weight(sentence: str) -> float:
        words = telling_words(sentence, known["language"])
        return sum(frequency[word] for word in words) / max(len(words), 3)

    best = sorted(sentences, key=weight, reverse=True)[: known["limit"]]
    return {"text": " ".join(sentence for sentence in sentences if sentence in best), "knew": sorted(known)}


@activity
def sign(letter: str, shop: str) -> str:
    """Put the shop's name under whichever letter was written."""
    return f"{letter}\n{shop}"


def words_of(text: str) -> list[str]:
    """Give the words of a text in lower case."""
    return WORD.findall(text.lower())


def telling_words(text: str, language: str) -> list[str]:
    """Give the words of a text without the small ones of its language."""
    return [word for word in words_of(text) if len(word) > 2 and word not in LEXICONS[language].small]


def lexicon(small: str, praise: str, complaint: str, thanks: str, apology: str) -> Lexicon:
    """Write a lexicon as lines of text."""
    return Lexicon(frozenset(small.split()), tuple(praise.split()), tuple(complaint.split()), thanks, apology)


LEXICONS = {
    "en": lexicon(
        "a and anyone are at be but for i in is it itself my nobody of on that the this to was whole would",
        "excellent great happy love perfect quick quiet recommend",
        "broke damaged disappoint late leak noisy refund wet",
        "Dear {name}, thank you! We are glad to read: {words}.",
        "Dear {name}, we are sorry ({words}) and will put it right.",
    ),
    "de": lexicon(
        "aber auf bin das der die ein es für ich im in ist mein mit möchte nach nicht sehr und war zu zwei",
        "freue gut leise perfekt schnell schön toll",
        "defekt enttäuscht kaputt klemmt laut zurück",
        "Guten Tag {name}, vielen Dank! Das freut uns: {words}.",
        "Guten Tag {name}, das tut uns leid ({words}); wir bringen es in Ordnung.",
    ),
    "fr": lexicon(
        "cet dans de des du en est et il je la le les mais mes pas pour que sont suis très un une à",
        "beau content délicieu facile magnifique parfait ravi recommande silencieu",
        "bruyant cassé déçu remboursement retard",
        "Bonjour {name}, merci ! Cela nous fait plaisir : {words}.",
        "Bonjour {name}, nous sommes désolés ({words}) et nous nous en occupons.",
    ),
    "ru": lexicon(
        "без все для из как мне на не но она они очень по так через что это",
        "люблю отличн прекрасн рекомендую тих удобн",
        "разочарован слома шум",
        "Здравствуйте, {name}! Спасибо, нам приятно: {words}.",
        "Здравствуйте, {name}! Нам очень жаль ({words}), мы всё исправим.",
    ),
    "es": lexicon(
        "a con de el en es la lo los mucho muy no para pero por que se todos un una y",
        "excelente maravilla perfect rápid recomiendo silencios",
        "decepcion reembolso roto ruidos tarde",
        "Hola, {name}: ¡gracias! Nos alegra leer: {words}.",
        "Hola, {name}: lo sentimos ({words}) y lo arreglaremos.",
    ),
    "it": lexicon(
        "a che con da di e gli i il in la le lo ma non per si sono un una vorrei è",
        "bell eccellente ottim perfett silenzios",
        "delus rimborso ritardo rott rumoros",
        "Ciao {name}, grazie! Siamo felici di leggere: {words}.",
        "Ciao {name}, ci dispiace ({words}) e rimedieremo.",
    ),
}
