from django.apps import AppConfig


class WorkingMemoryConfig(AppConfig):
    name = "workingmemory"
    label = "memorygw_workingmemory"
    verbose_name = "Working memory"
    default_auto_field = "django.db.models.BigAutoField"
