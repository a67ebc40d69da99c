"""What all pages share: who may read content, lists that never count a table, a log without content (S13, S36)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from memorygw.exceptions import MemorygwError
from memorygw.ids import uuid_or_none

READ_CONTENT = "memorygw.read_content"
MAX_LISTED = 1_000
ADDED, CHANGED, DELETED = 1, 2, 3

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin, _ModelForm, _Paginator = admin.ModelAdmin, forms.ModelForm, Paginator


def may_read(request: HttpRequest) -> bool:
    """Whether whoever looks may see what people said and what is known about them."""
    return bool(getattr(request, "user", None) and request.user.has_perm(READ_CONTENT))


class LimitedPaginator(_Paginator):
    """The first rows of a list, in pages. What is behind them is found by a filter or a search."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[:MAX_LISTED].count())


class GatewayAdmin(_ModelAdmin):
    """Rows that are read here and written by the gateway. Nothing may be added, changed or deleted unless a page says
    so. ``content`` are the columns for those who may read content; where there are some, reading is logged."""

    content: ClassVar[Sequence[str]] = ()
    is_logged: ClassVar[bool] = False

    actions: Sequence[Any] = ()
    paginator = LimitedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    ordering = ("-pk",)  # ids sort by creation
    sortable_by = ()

    # --- who may what

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what the filters ask for: any other lookup tells what is in a column, without showing it."""
        names = [name for name in self.list_filter if isinstance(name, str)]
        own = {getattr(name, "parameter_name", None) for name in self.list_filter}
        lookups = own | {f"{name}__{end}" for name in names for end in ("exact", "id__exact", "isnull")}
        return lookup in lookups and "\x00" not in "".join(value)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Those of the page. A host's own for all pages could write past the gateway, as deleting in bulk does."""
        own = {action if isinstance(action, str) else action.__name__ for action in self.actions or ()}
        # Django names the place from 6.1 on.
        place = () if action_location is None else (action_location,)
        return {name: action for name, action in super().get_actions(request, *place).items() if name in own}

    # --- what is shown

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return self._readable(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return self._readable(request, super().get_fields(request, obj))

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        rows = super().get_queryset(request)
        columns = {field.name for field in self.opts.concrete_fields}
        return rows if may_read(request) else rows.defer(*columns.intersection(self.content))

    def _readable(self, request: HttpRequest, columns: Iterable[Any]) -> list[Any]:
        return [column for column in columns if column not in self.content or may_read(request)]

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None) -> HttpResponse:
        response: Any = super().changelist_view(request, dict(extra_context or {}))
        shows_content = self.is_logged and not set(self.content).isdisjoint(self.list_display)
        if shows_content and may_read(request) and hasattr(response, "context_data"):
            self._log(request, None, CHANGED, "Opened a list.")
        return response  # type: ignore[no-any-return]

    def render(self, request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
        """A page of our own, in the look of this admin."""
        request.current_app = self.admin_site.name
        values = {**self.admin_site.each_context(request), "opts": self.opts, "title": title, **context}
        return TemplateResponse(request, f"memorygw/admin/{template}", values)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **options: Any) -> Any:
        obj = options.get("obj")
        if self.is_logged and obj and may_read(request):
            self.log_opening(request, obj)
        return super().render_change_form(request, context, *args, **options)

    # --- Django's log: who did what to which row, and no word of it

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        return "Added." if add else f"Changed: {', '.join(form.changed_data) or 'nothing'}."

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return self._log(request, obj, ADDED, "Added.")

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """``message``: as `construct_change_message` makes it, or one of this package's own."""
        return self._log(request, obj, CHANGED, message if isinstance(message, str) else "Changed.")

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        return [self._log(request, obj, DELETED, "Deleted.") for obj in queryset]

    def log_opening(self, request: HttpRequest, obj: Model) -> None:
        self._log(request, obj, CHANGED, "Opened.")

    def _log(self, request: HttpRequest, obj: Model | None, flag: int, message: str) -> Any:
        # Not with the module: a host need not have these apps.
        from django.contrib.admin.models import LogEntry
        from django.contrib.contenttypes.models import ContentType

        model = type(obj) if obj else self.model
        return LogEntry.objects.create(
            user_id=cast(int, request.user.pk),
            content_type=ContentType.objects.get_for_model(model, for_concrete_model=False),
            object_id=str(obj.pk) if obj else None,
            object_repr=f"{model._meta.verbose_name} {obj.pk}" if obj else str(self.opts.verbose_name_plural),
            action_flag=flag,
            change_message=message,
        )


class PageAdmin(GatewayAdmin):
    """Rows that open as a page of our own in place of a form; ``related`` are read along."""

    related: ClassVar[Sequence[str]] = ("tenant",)

    def show(self, request: HttpRequest, row: Any) -> HttpResponse:
        raise NotImplementedError

    def take(self, request: HttpRequest, row: Any) -> HttpResponse:
        """What is posted to the page: nothing, unless it says so."""
        raise PermissionDenied

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        pk = uuid_or_none(object_id)
        return pk and self.get_queryset(request).select_related(*self.related).filter(pk=pk).first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return,attr-defined]
        if request.method not in ("GET", "HEAD"):
            return self.take(request, row)
        if may_read(request):
            self.log_opening(request, row)
        return self.show(request, row)


class ListOnlyAdmin(GatewayAdmin):
    """A list and nothing else: no row has a page of its own, under any address."""

    list_display_links = None

    def get_urls(self) -> list[Any]:
        return [url for url in super().get_urls() if str(url.name).endswith("_changelist")]


class Text(forms.CharField):
    """Text as it is stored: blanks around it stay, and a browser's line breaks are those of everybody else."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "strip": False})

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) else text


class GatewayForm(_ModelForm):
    """A form that is written by being validated: what the gateway refuses is told at its field, and nothing is lost."""

    refused_at: ClassVar[str] = ""

    def write(self) -> Any:
        """Pass what was given to the gateway; the row as it is then."""
        raise NotImplementedError

    @property
    def changes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}

    def _post_clean(self) -> None:
        if self.errors:
            return
        try:
            self.instance = self.write()
        except MemorygwError as error:
            for name, texts in (error.fields or {self.refused_at: [str(error)]}).items():
                self.add_error(name if name in self.fields else None, texts)

    def save(self, commit: bool = True) -> Any:
        return self.instance

    def save_m2m(self) -> None:
        """There is nothing left to save."""
