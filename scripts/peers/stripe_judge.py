"""Judges requests and answers by the types of the official library, and makes and checks signatures with it."""
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
        ("GET", "refunds"): lambda: p.RefundListParams,
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
        # Most lists of values end with "or any other text", for those of later versions. We send only those listed.
        listed = [one for one in args if typing_extensions.get_origin(one) in (typing.Literal, typing_extensions.Literal)]
        if any(text for one in listed for text in typing_extensions.get_args(one)):
            args = [one for one in args if one is not str]
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


def answer_wrong(value, kind, at, wrong):
    """Compares an answer with the library's classes: unknown names, wrong types, values that are none of those listed."""
    origin, args = typing_extensions.get_origin(kind), typing_extensions.get_args(kind)
    name = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", None)
    if name is not None:
        return answer_wrong(value, getattr(stripe, name, object), at, wrong)
    if origin is typing.Union:
        if value is None and type(None) in args:
            return None
        # Most lists of values end with "or any other text", for those of later versions. We know only those listed.
        literals = [one for one in args if typing_extensions.get_origin(one) in (typing.Literal, typing_extensions.Literal)]
        attempts = []
        for one in literals if literals and isinstance(value, str) else args:
            found = []
            answer_wrong(value, one, at, found)
            if not found:
                return None
            attempts.append(found)
        wrong.extend(min(attempts, key=len))
    elif origin in (typing.Literal, typing_extensions.Literal):
        if value not in args:
            wrong.append(f"{at}: {value!r} is none of {args}")
    elif origin is list:
        if not isinstance(value, list):
            wrong.append(f"{at}: is not a list")
        else:
            for place, one in enumerate(value):
                answer_wrong(one, args[0], f"{at}[{place}]", wrong)
    elif origin is not None and getattr(origin, "__name__", "") == "ListObject":
        if not isinstance(value, dict) or value.get("object") != "list":
            wrong.append(f"{at}: is not a list of the API")
        else:
            for place, one in enumerate(value["data"]):
                answer_wrong(one, args[0], f"{at}[{place}]", wrong)
    elif isinstance(kind, type) and issubclass(kind, stripe.StripeObject) and kind is not stripe.StripeObject:
        if not isinstance(value, dict):
            wrong.append(f"{at}: {value!r} is not an object")
            return None
        known = {}
        for one in reversed(kind.__mro__):
            known.update(vars(one).get("__annotations__", {}))
        if not any(name for name in known if not name.startswith("_") and name != "OBJECT_NAME"):
            return None
        for key, one in value.items():
            if key not in known:
                wrong.append(f"{at}.{key}: {kind.__name__} has no such field")
            else:
                answer_wrong(one, known[key], f"{at}.{key}", wrong)
    elif kind in (int, bool, str, float):
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or (kind is int and isinstance(value, bool)):
            wrong.append(f"{at}: {value!r} is no {kind.__name__}")
    return None


def sign(body, secret, at):
    return f"t={at},v1={stripe.WebhookSignature._compute_signature(f'{at}.{body}', secret)}"


def request_wrong(verb, path, pairs):
    """What the library's types say against a request, and the type it was judged by."""
    kind = types(path, verb)
    if kind is None:
        return [f"{verb} {path}: the library has no such request"], None
    wrong = []
    check(nest(pairs), kind, f"{verb} {path}", wrong)
    return wrong, kind.__name__


def main():
    work = json.load(sys.stdin)
    wrong, judged = [], set()
    for request in work.get("requests", []):
        found, kind = request_wrong(request["verb"], request["path"], request["params"])
        wrong.extend(found)
        if kind is not None:
            judged.add(kind)
    answer = {"wrong": wrong, "judged": sorted(judged), "version": stripe.api_version}
    if "sign" in work:
        given = work["sign"]
        answer["header"] = sign(given["body"], given["secret"], given["at"])
        stripe.WebhookSignature.verify_header(given["body"], given["ours"], given["secret"], None)
        answer["ours"] = True
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
