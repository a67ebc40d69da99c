from memorygw import gateway
from memorygw.management.rights import ForgetCommand


class Command(ForgetCommand):
    help = "Delete everything about a person, and print the receipt."
    mode = gateway.ERASURE_MODES[0]
