"""Forms of the pages. What the gateway refuses is told at its field, and what was typed stays there."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.core.validators import MaxLengthValidator
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from memorygw import gateway
from memorygw.conf import conf
from memorygw.exceptions import (
    BlankFactError,
    ErasureRunningError,
    FactRefusedError,
    FactTooLongError,
    InvalidError,
    MemorygwError,
    MemoryKeyTakenError,
    NotFoundError,
)

_REFUSALS: Mapping[type[MemorygwError], tuple[str, Promise]] = {
    BlankFactError: ("key", _("Please enter something that can be read.")),
    FactTooLongError: ("value", _("This is too long to remember. Please say it in fewer words.")),
    FactRefusedError: ("value", _("Passwords, keys and payment data are not remembered.")),
    MemoryKeyTakenError: ("key", _("There is an entry for this already.")),
    InvalidError: ("key", _("This name cannot be used.")),
}
_OTHER_REFUSAL = "value", _("This cannot be remembered.")


class Text(forms.CharField):
    """Text whose line breaks are everybody's, not a browser's. Its cap is no attribute: browsers cut what is pasted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if conf.MAX_FACT_CHARS:
            self.validators.append(MaxLengthValidator(conf.MAX_FACT_CHARS))

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) else text


class FactForm(forms.Form):
    """Key and value of one of the person's own facts; of a free text the value alone."""

    def __init__(self, memory: Any, data: Any = None) -> None:
        said = {"key": memory.key, "value": memory.value}
        # There may be many of these on a page: every control has an id of its own.
        super().__init__(data, initial=said, auto_id=f"{memory.pk}-%s", label_suffix="")
        self.memory = memory
        if memory.key:
            one_line = forms.TextInput(attrs={"dir": "auto", "autocomplete": "off"})
            self.fields["key"] = Text(label=_("Name"), widget=one_line)
        some_lines = forms.Textarea(attrs={"dir": "auto", "rows": 3})
        self.fields["value"] = Text(label=_("What is remembered"), widget=some_lines)

    def save(self, tenant_id: UUID, user_id: str) -> bool:
        """Pass what was changed to the gateway, and say whether it was taken; a refusal is an error of the form.

        Raises `MemoryNotFoundError`, `ErasureRunningError`.
        """
        changes = {name: self.cleaned_data[name] for name in self.changed_data}
        try:
            if changes:
                gateway.change_memory(tenant_id, user_id, self.memory.pk, **changes)
        except (NotFoundError, ErasureRunningError):
            raise
        except MemorygwError as error:
            name, text = _REFUSALS.get(type(error), _OTHER_REFUSAL)
            self.add_error(name if name in self.fields else "value", str(text))
        return not self.errors


class ForgetForm(forms.Form):
    """A tick before everything goes."""

    sure = forms.BooleanField(label=_("Yes, forget all of it. This cannot be undone."))
