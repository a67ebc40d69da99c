from django.apps import AppConfig


class ThreadsConfig(AppConfig):
    name = "threads"
    label = "memorygw_threads"
    verbose_name = "Threads"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # What is declared needs the models.
        import threads.personal  # noqa: F401
