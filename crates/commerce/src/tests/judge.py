"""Judges recorded requests by the parameter types of the official library, and makes and checks signatures with it."""
import builtins
import json
import sys
import typing

import stripe
import typing_extensions
from stripe import params as p
from stripe.params import billing_portal, checkout


class Names(dict):
    """Names that the library's modules import for type checkers only."""

    def __init__(self, module):
        self.module = vars(sys.modules[module])

    def __missing__(self, name):
        if name in self.module or hasattr(builtins, name):
            raise KeyError(name)
        return getattr(typing, name, None) or getattr(stripe, name, object)


def types(path, verb):
    parts = path.strip("/").split("/")[1:]
    known = {
        ("POST", "customers"): lambda: p.CustomerCreateParams,
        ("POST", "prices"): lambda: p.PriceCreateParams,
        ("POST", "checkout", "sessions"): lambda: checkout.SessionCreateParams,
        ("POST", "checkout", "sessions", "*", "expire"): lambda: checkout.SessionExpireParams,
        ("GET", "checkout", "sessions", "*"): lambda: checkout.SessionRetrieveParams,
        ("POST", "billing_portal", "sessions"): lambda: billing_portal.SessionCreateParams,
        ("GET", "subscriptions", "*"): lambda: p.SubscriptionRetrieveParams,
        ("POST", "subscriptions", "*"): lambda: p.SubscriptionModifyParams,
        ("DELETE", "subscriptions", "*"): lambda: p.SubscriptionCancelParams,
        ("POST", "invoices", "create_preview"): lambda: p.InvoiceCreatePreviewParams,
        ("GET", "invoices", "*"): lambda: p.InvoiceRetrieveParams,
        ("POST", "invoiceitems"): lambda: p.InvoiceItemCreateParams,
        ("GET", "invoiceitems"): lambda: p.InvoiceItemListParams,
        ("GET", "payment_intents", "*"): lambda: p.PaymentIntentRetrieveParams,
        ("GET", "prices", "*"): lambda: p.PriceRetrieveParams,
        ("GET", "charges", "*"): lambda: p.ChargeRetrieveParams,
        ("GET", "refunds", "*"): lambda: p.RefundRetrieveParams,
        ("GET", "disputes", "*"): lambda: p.DisputeRetrieveParams,
        ("GET", "payouts", "*"): lambda: p.PayoutRetrieveParams,
        ("POST", "refunds"): lambda: p.RefundCreateParams,
        ("POST", "accounts"): lambda: p.AccountCreateParams,
        ("GET", "accounts", "*"): lambda: p.AccountRetrieveParams,
        ("POST", "accounts", "*", "login_links"): lambda: p.AccountCreateLoginLinkParams,
        ("POST", "account_links"): lambda: p.AccountLinkCreateParams,
        ("GET", "events"): lambda: p.EventListParams,
    }
    for shape, find in known.items():
        if shape[0] == verb and len(shape) - 1 == len(parts) and all(s in ("*", q) for s, q in zip(shape[1:], parts)):
            return find()
    return None


def nest(pairs):
    """`items[0][price]` as nested objects and lists."""
    root = {}
    for name, value in pairs:
        keys = name.replace("]", "").split("[")
        place = root
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return root


def check(value, kind, at, wrong):
    origin, args = typing_extensions.get_origin(kind), typing_extensions.get_args(kind)
    if origin is typing.Union or str(origin) == "<class 'types.UnionType'>":
        attempts = []
        for one in args:
            found = []
            check(value, one, at, found)
            if not found:
                return
            attempts.append(found)
        wrong.extend(min(attempts, key=len))
    elif getattr(origin, "__name__", "") in ("NotRequired", "Required"):
        check(value, args[0], at, wrong)
    elif origin in (typing.Literal, typing_extensions.Literal):
        if value not in [str(one) for one in args]:
            wrong.append(f"{at}: {value!r} is none of {args}")
    elif origin is list:
        if not isinstance(value, dict):
            wrong.append(f"{at}: is not a list")
        else:
            for key, one in value.items():
                check(one, args[0], f"{at}[{key}]", wrong)
    elif origin is dict:
        if not isinstance(value, dict):
            wrong.append(f"{at}: is not an object")
    elif typing_extensions.is_typeddict(kind):
        if not isinstance(value, dict):
            wrong.append(f"{at}: is not an object")
            return
        hints = typing_extensions.get_type_hints(kind, None, Names(kind.__module__))
        for key, one in value.items():
            if key not in hints:
                wrong.append(f"{at}.{key}: is unknown")
            else:
                check(one, hints[key], f"{at}.{key}", wrong)
        wrong.extend(f"{at}.{key}: is required" for key in kind.__required_keys__ if key not in value)
    elif kind is int:
        if not (isinstance(value, str) and value.lstrip("-").isdigit()):
            wrong.append(f"{at}: {value!r} is no number")
    elif kind is bool:
        if value not in ("true", "false"):
            wrong.append(f"{at}: {value!r} is no truth value")
    elif kind is str:
        if not isinstance(value, str):
            wrong.append(f"{at}: is no text")


def main():
    work = json.load(sys.stdin)
    wrong, judged = [], set()
    for request in work.get("requests", []):
        kind = types(request["path"], request["verb"])
        shape = f"{request['verb']} {request['path']}"
        if kind is None:
            wrong.append(f"{shape}: the library has no such request")
            continue
        judged.add(kind.__name__)
        check(nest(request["params"]), kind, shape, wrong)
    answer = {"wrong": wrong, "judged": sorted(judged), "version": stripe.api_version}
    if "sign" in work:
        sign = work["sign"]
        made = stripe.WebhookSignature._compute_signature(f"{sign['at']}.{sign['body']}", sign["secret"])
        answer["header"] = f"t={sign['at']},v1={made}"
        stripe.WebhookSignature.verify_header(sign["body"], sign["ours"], sign["secret"], None)
        answer["ours"] = True
    for kind, text in work.get("objects", []):
        object_ = stripe.convert_to_stripe_object(json.loads(text)) if hasattr(stripe, "convert_to_stripe_object") else stripe.StripeObject.construct_from(json.loads(text), "sk")
        answer.setdefault("objects", []).append(type(object_).__name__)
    json.dump(answer, sys.stdout)


main()
