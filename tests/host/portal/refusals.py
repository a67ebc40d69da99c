from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response


class Nobody(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return False


def teapot(exception: Exception, context: dict[str, Any]) -> Response:
    return Response({"detail": "I am a teapot."}, status=418)
