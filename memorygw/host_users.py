"""A host's users: forgotten when their row is deleted, where ``MEMORYGW_FORGET_ON_USER_DELETE`` says so."""

from functools import partial
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.utils.module_loading import import_string

from memorygw import gateway
from memorygw.conf import conf


def forget_deleted(sender: Any, instance: Any, **_: Any) -> None:
    """Connected to post_delete of the user model. Whom the row stands for is what ``MEMORYGW_IDENTITY`` says of a
    request of theirs; calls that run lose their threads, since nobody is there to wait for them."""
    if not conf.FORGET_ON_USER_DELETE:
        return
    request = HttpRequest()
    request.user = instance
    tenant, user_id = import_string(conf.IDENTITY)(request)
    forget = partial(gateway.forget_user, tenant, user_id, requested_by="user deleted", force=True)
    # Of several that are deleted together, one that fails is no reason to keep the others.
    transaction.on_commit(forget, robust=True)
