from memorygw import gateway
from memorygw.management.rights import ForgetCommand


class Command(ForgetCommand):
    help = "Delete everything about a person but ids, turn counts and dates of their threads, and print the receipt."
    mode = gateway.ERASURE_MODES[1]
