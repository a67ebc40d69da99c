"""Prompts are templates under ``memorygw/prompts/``; a host replaces one by a template of the same path."""

from django.template.loader import get_template
from django.utils.safestring import mark_safe


def render_prompt(name: str, **slots: str) -> str:
    """Fill ``memorygw/prompts/<name>.txt`` in one pass.

    Slot text is inert: template syntax or another slot's name in it stays as it is (rows U112, A75), and nothing is
    HTML-escaped, since Django would escape whatever the file is called.
    """
    safe = {slot: mark_safe(text) for slot, text in slots.items()}  # noqa: S308  a prompt is no HTML
    return str(get_template(f"memorygw/prompts/{name}.txt").render(safe)).strip()
