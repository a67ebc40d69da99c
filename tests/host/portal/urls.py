from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class PostsView(APIView):
    def get(self, request: Request) -> Response:
        return Response("Nobody reads this.")


urlpatterns = [
    path("posts", PostsView.as_view()),
    path("memory/", include("memorygw.api.urls")),
    path("mine/", include("memorygw.pages.urls")),
]
