from django.apps import AppConfig


class ForumConfig(AppConfig):
    name = "forum"
    label = "threads"
    default_auto_field = "django.db.models.BigAutoField"
