"""A stand-in of the payment processor: stateful, with a clock, and of our own making.

Requests are judged by the parameter types of the official library, and so are our answers by its classes: what they say
against either is under `/_/wrong`. A request that repeats an `Idempotency-Key` gets the first answer again, also a 500, as the
real one does. `/_/…` are the strings by which tests pull: the clock, cards, faults, and the events with their signatures.

How the real processor behaves is not proven by this. Usage: stripe_stand_in.py [port] [first second of its clock]
"""
import datetime
import json
import random
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import stripe
import stripe_judge as judge

DAY = 86_400
CLASSES = {
    "customer": stripe.Customer, "price": stripe.Price, "checkout.session": stripe.checkout.Session,
    "billing_portal.session": stripe.billing_portal.Session, "subscription": stripe.Subscription, "invoice": stripe.Invoice,
    "invoiceitem": stripe.InvoiceItem, "payment_intent": stripe.PaymentIntent, "charge": stripe.Charge,
    "refund": stripe.Refund, "dispute": stripe.Dispute, "payout": stripe.Payout, "account": stripe.Account,
    "account_link": stripe.AccountLink, "login_link": stripe.LoginLink, "event": stripe.Event,
    "balance_transaction": stripe.BalanceTransaction, "application_fee": stripe.ApplicationFee,
    "payment_method": stripe.PaymentMethod,
}


class Refused(Exception):
    def __init__(self, status, code, message, kind="invalid_request_error"):
        self.status, self.body = status, {"error": {"type": kind, "code": code, "message": message}}


def missing(what):
    return Refused(404, "resource_missing", f"No such {what}")


def later(anchor, interval, count):
    """So many months or years after a moment; the last day of a month stays the last day."""
    at = datetime.datetime.fromtimestamp(anchor, datetime.timezone.utc)
    months = at.month - 1 + (12 * count if interval == "year" else count)
    year, month = at.year + months // 12, months % 12 + 1
    first = datetime.datetime(year + month // 12, month % 12 + 1, 1, tzinfo=datetime.timezone.utc)
    day = min(at.day, (first - datetime.timedelta(days=1)).day)
    return int(at.replace(year=year, month=month, day=day).timestamp())


class Processor:
    def __init__(self, at):
        self.lock = threading.RLock()
        self.at, self.objects, self.owner, self.hidden, self.due = at, {}, {}, {}, []
        self.log, self.keys, self.count = [], {}, 0
        self.faults, self.requests, self.wrong, self.judged, self.hook = [], [], [], set(), None

    # What is kept.

    def now(self):
        return int(time.time()) if self.at is None else self.at

    def make(self, kind, prefix, whose="", hidden=None, **fields):
        self.count += 1
        made = {"id": f"{prefix}_{self.count:06}{random.randrange(16**8):08x}", "object": kind, **fields}
        self.objects[made["id"]] = made
        self.owner[made["id"]] = whose
        self.hidden[made["id"]] = hidden or {}
        return made

    def find(self, kind, id, account=""):
        found = self.objects.get(id)
        if found is None or found["object"] != kind or self.owner[id] != account:
            raise missing(kind)
        return found

    def of(self, kind, **fields):
        all = [one for one in self.objects.values() if one["object"] == kind]
        return [one for one in all if all_equal(one, fields)]

    def shown(self, object, expand=()):
        """An object as it is answered: others are in it by their ids, unless they are asked for."""
        whole = json.loads(json.dumps(object))
        if object["object"] == "invoice" and "payments" in expand:
            whole["payments"] = listing(self.hidden[object["id"]].get("payments", []))
        for path in expand:
            place, parts = whole, path.split(".")
            for depth, part in enumerate(parts):
                if isinstance(place.get(part), str):
                    place[part] = json.loads(json.dumps(self.objects[place[part]]))
                if not isinstance(place.get(part), dict):
                    break
                place = place[part]
        return whole

    def emit(self, kind, object, account=""):
        fields = {"account": account} if account else {}
        event = self.make("event", "evt", "", None, api_version=stripe.api_version, created=self.now(), type=kind,
                          livemode=False, pending_webhooks=1, request={"id": None, "idempotency_key": None},
                          data={"object": self.shown(object)}, **fields)
        self.judge(event, CLASSES["event"], kind)
        self.log.append((account, json.dumps(event)))

    def judge(self, value, kind, at):
        found = []
        judge.answer_wrong(value, kind, at, found)
        self.wrong.extend(found)

    def at_time(self, seconds, act, id):
        self.due.append((seconds, len(self.due), act, id))

    def pass_time(self, to):
        while True:
            ready = sorted(one for one in self.due if one[0] <= to)
            if not ready:
                break
            self.due.remove(ready[0])
            if self.at is not None:
                self.at = max(self.at, ready[0][0])
            getattr(self, ready[0][2])(ready[0][3])
        if self.at is not None:
            self.at = to

    # Checkouts and what is bought.

    def checkout(self, given, account):
        now = self.now()
        fields = {
            "mode": given["mode"], "status": "open", "payment_status": "unpaid", "success_url": given["success_url"],
            "cancel_url": given["cancel_url"], "client_reference_id": given.get("client_reference_id"), "created": now,
            "expires_at": now + DAY, "livemode": False, "metadata": {}, "customer": given.get("customer"),
            "customer_email": given.get("customer_email"), "subscription": None, "payment_intent": None,
        }
        hidden = {"given": given}
        lines = list(given["line_items"].values())
        if given["mode"] == "subscription":
            self.find("customer", given["customer"])
            price = self.find("price", lines[0]["price"])
            fields["currency"] = price["currency"]
            fields["amount_total"] = price["unit_amount"] * int(lines[0].get("quantity", 1))
        else:
            fields["currency"] = lines[0]["price_data"]["currency"]
            fields["amount_total"] = sum(int(one["price_data"]["unit_amount"]) * int(one["quantity"]) for one in lines)
            fee = int(given.get("payment_intent_data", {}).get("application_fee_amount", 0))
            if fee > fields["amount_total"]:
                raise Refused(400, "parameter_invalid_integer", "The fee is more than the amount.")
            destination = given.get("payment_intent_data", {}).get("transfer_data", {}).get("destination")
            if destination:
                self.find("account", destination)
            if account and not self.find("account", account)["charges_enabled"]:
                raise Refused(400, "account_invalid", "This account cannot be paid yet.")
            hidden["fee"] = fee
        made = self.make("checkout.session", "cs", account, hidden, **fields)
        made["url"] = f"https://checkout.example.test/{made['id']}"
        self.at_time(made["expires_at"], "expire", made["id"])
        return made

    def expire(self, id):
        session = self.objects[id]
        if session["status"] == "open":
            session.update(status="expired", url=None)
            self.emit("checkout.session.expired", session, self.owner[id])

    def pay(self, id, card):
        session, account = self.objects[id], self.owner[id]
        if session["status"] != "open":
            raise Refused(400, "session_not_open", "This session is not open.")
        if card == "declined":
            raise Refused(402, "card_declined", "The card was declined.", "card_error")
        given = self.hidden[id]["given"]
        if session["mode"] == "subscription":
            line = list(given["line_items"].values())[0]
            subscription = self.subscribe(session["customer"], self.objects[line["price"]], int(line.get("quantity", 1)),
                                          given.get("subscription_data", {}), card)
            session["subscription"] = subscription["id"]
            paid = "no_payment_required" if subscription["status"] == "trialing" else "paid"
        else:
            intent = self.charge(session["amount_total"], session["currency"], card, account, self.hidden[id]["fee"])
            session["payment_intent"] = intent["id"]
            paid = "paid"
        session.update(status="complete", payment_status=paid, url=None)
        self.emit("checkout.session.completed", session, account)

    def subscribe(self, customer, price, quantity, data, card):
        now, days = self.now(), int(data.get("trial_period_days", 0))
        interval = price["recurring"]["interval"]
        ends = now + days * DAY if days else later(now, interval, 1)
        method = self.make("payment_method", "pm", type="card", created=now, livemode=False, metadata={}, customer=customer,
                           billing_details={}, card={"brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2040,
                                                     "funding": "credit", "fingerprint": f"print_{customer}_{card}"})
        subscription = self.make(
            "subscription", "sub", hidden={"card": card, "anchor": ends if days else now, "cycles": 0 if days else 1},
            customer=customer, status="trialing" if days else "active", livemode=False, created=now, start_date=now,
            currency=price["currency"], cancel_at_period_end=False, cancel_at=None, canceled_at=None, ended_at=None,
            trial_start=now if days else None, trial_end=ends if days else None, default_payment_method=method["id"],
            metadata=data.get("metadata", {}), collection_method="charge_automatically", latest_invoice=None,
            billing_cycle_anchor=ends)
        subscription["items"] = listing([{
            "id": f"si_{subscription['id']}", "object": "subscription_item", "created": now, "metadata": {}, "price": price,
            "quantity": quantity, "subscription": subscription["id"], "current_period_start": now,
            "current_period_end": ends}])
        self.emit("customer.subscription.created", subscription)
        if not days:
            invoice = self.invoice(subscription, "subscription_create", (now, now), [self.line(subscription, now, ends)])
            self.collect(invoice["id"])
        self.at_time(ends, "renew", subscription["id"])
        return subscription

    def line(self, subscription, start, end):
        item = subscription["items"]["data"][0]
        return self.line_item(item["price"]["unit_amount"] * item["quantity"], item["quantity"], "A plan", (start, end), {})

    def line_item(self, amount, quantity, description, period, metadata):
        self.count += 1
        return {"id": f"il_{self.count}", "object": "line_item", "amount": amount, "quantity": quantity, "livemode": False,
                "description": description, "metadata": metadata, "currency": "usd",
                "period": {"start": period[0], "end": period[1]}}

    def invoice(self, subscription, reason, period, lines):
        now = self.now()
        invoice = self.make(
            "invoice", "in", hidden={"payments": []}, customer=subscription["customer"], livemode=False, status="draft",
            parent={"type": "subscription_details", "quote_details": None,
                    "subscription_details": {"subscription": subscription["id"], "metadata": {}}},
            billing_reason=reason, number=None, currency=subscription["currency"], period_start=period[0],
            period_end=period[1], created=now, amount_paid=0, attempt_count=0, next_payment_attempt=None,
            hosted_invoice_url=None, status_transitions={"finalized_at": None, "paid_at": None, "voided_at": None,
                                                         "marked_uncollectible_at": None},
            lines=listing(lines))
        self.add_up(invoice)
        subscription["latest_invoice"] = invoice["id"]
        self.emit("invoice.created", invoice)
        return invoice

    def add_up(self, invoice):
        total = sum(line["amount"] for line in invoice["lines"]["data"])
        invoice.update(subtotal=total, total=total, amount_due=max(total, 0))
        invoice["amount_remaining"] = invoice["amount_due"] - invoice["amount_paid"]

    def subscription_of(self, invoice):
        return self.objects[invoice["parent"]["subscription_details"]["subscription"]]

    def collect(self, id):
        """A draft becomes an invoice and is paid, or its payment is tried again."""
        invoice = self.objects[id]
        subscription = self.subscription_of(invoice)
        if invoice["status"] == "draft":
            invoice.update(status="open", number=f"N-{id[-8:]}", hosted_invoice_url=f"https://invoice.example.test/{id}")
            invoice["status_transitions"]["finalized_at"] = self.now()
            self.emit("invoice.finalized", invoice)
        if invoice["status"] != "open" or (invoice["next_payment_attempt"] or 0) > self.now():
            return
        if subscription["status"] == "canceled":
            invoice["status"] = "void"
            self.emit("invoice.voided", invoice)
            return
        invoice["attempt_count"] += 1
        card, renews = self.hidden[subscription["id"]]["card"], invoice["billing_reason"] != "subscription_create"
        if card == "fails" and renews and invoice["amount_due"]:
            last = invoice["attempt_count"] >= 4
            invoice["next_payment_attempt"] = None if last else self.now() + 3 * DAY
            if not last:
                self.at_time(self.now() + 3 * DAY, "collect", id)
            self.emit("invoice.payment_failed", invoice)
            subscription["status"] = "unpaid" if last else "past_due"
            self.emit("customer.subscription.updated", subscription)
            return
        if invoice["amount_due"]:
            intent = self.charge(invoice["amount_due"], invoice["currency"], card, "", 0)
            self.hidden[id]["payments"].append({
                "id": f"inpay_{intent['id']}", "object": "invoice_payment", "status": "paid", "invoice": id, "created": self.now(),
                "currency": invoice["currency"], "is_default": True, "livemode": False, "amount_requested": invoice["amount_due"],
                "amount_paid": invoice["amount_due"], "payment": {"type": "payment_intent", "payment_intent": intent["id"]},
                "status_transitions": {"canceled_at": None, "paid_at": self.now()}})
        invoice.update(status="paid", amount_paid=invoice["amount_due"], next_payment_attempt=None)
        invoice["status_transitions"]["paid_at"] = self.now()
        self.add_up(invoice)
        self.emit("invoice.paid", invoice)
        if subscription["status"] in ("past_due", "unpaid", "incomplete"):
            subscription["status"] = "active"
            self.emit("customer.subscription.updated", subscription)

    def charge(self, amount, currency, card, account, fee):
        kept = amount * 29 // 1000 + 30
        balance = self.make("balance_transaction", "txn", account, fee=kept, amount=amount, net=amount - kept, type="charge",
                            currency=currency, created=self.now(), available_on=self.now(), status="available")
        cut = None
        if fee:
            cut = self.make("application_fee", "fee", account, amount=fee, amount_refunded=0, currency=currency,
                            created=self.now(), livemode=False, refunded=False)
        charge = self.make("charge", "ch", account, amount=amount, amount_refunded=0, currency=currency, refunded=False,
                           disputed=False, status="succeeded", livemode=False, paid=True, captured=True, created=self.now(),
                           metadata={}, balance_transaction=balance["id"], application_fee=cut and cut["id"],
                           application_fee_amount=fee or None)
        intent = self.make("payment_intent", "pi", account, amount=amount, currency=currency, status="succeeded",
                           latest_charge=charge["id"], livemode=False, created=self.now(), metadata={},
                           application_fee_amount=fee or None)
        charge["payment_intent"] = intent["id"]
        if account:
            self.emit("payment_intent.succeeded", intent, account)
            payout = self.make("payout", "po", account, amount=amount - fee - kept, currency=currency, status="in_transit",
                               livemode=False, created=self.now(), arrival_date=self.now() + 2 * DAY, automatic=True,
                               method="standard", type="bank_account", metadata={})
            self.at_time(self.now() + 2 * DAY, "paid_out", payout["id"])
        if card == "disputed":
            self.at_time(self.now() + 60, "dispute", charge["id"])
        return intent

    def paid_out(self, id):
        self.objects[id]["status"] = "paid"
        self.emit("payout.paid", self.objects[id], self.owner[id])

    def dispute(self, id):
        charge, account = self.objects[id], self.owner[id]
        charge["disputed"] = True
        dispute = self.make("dispute", "dp", account, amount=charge["amount"], currency=charge["currency"], charge=id,
                            payment_intent=charge["payment_intent"], status="needs_response", reason="fraudulent",
                            livemode=False, created=self.now(), metadata={}, is_charge_refundable=False)
        self.emit("charge.dispute.created", dispute, account)
        self.at_time(self.now() + 7 * DAY, "lose", dispute["id"])

    def lose(self, id):
        self.objects[id]["status"] = "lost"
        self.emit("charge.dispute.closed", self.objects[id], self.owner[id])

    def renew(self, id):
        subscription, hidden = self.objects[id], self.hidden[id]
        if subscription["status"] not in ("trialing", "active", "past_due", "unpaid"):
            return
        item = subscription["items"]["data"][0]
        start, end = item["current_period_start"], item["current_period_end"]
        if end > self.now():
            return
        if subscription["cancel_at_period_end"]:
            self.cancel(subscription)
            return
        hidden["cycles"] += 1
        interval = item["price"]["recurring"]["interval"]
        item.update(current_period_start=end, current_period_end=later(hidden["anchor"], interval, hidden["cycles"]))
        if subscription["status"] == "trialing":
            subscription["status"] = "active"
        line = self.line(subscription, end, item["current_period_end"])
        invoice = self.invoice(subscription, "subscription_cycle", (start, end), [line])
        # A draft waits for an hour after its event was taken, and for three days when nobody takes it.
        self.at_time(self.now() + 72 * 3600, "collect", invoice["id"])
        self.at_time(item["current_period_end"], "renew", id)
        self.emit("customer.subscription.updated", subscription)

    def cancel(self, subscription):
        subscription.update(status="canceled", canceled_at=self.now(), ended_at=self.now())
        self.emit("customer.subscription.deleted", subscription)

    def proration(self, subscription, price, quantity, prorates):
        item, now = subscription["items"]["data"][0], self.now()
        start, end = item["current_period_start"], item["current_period_end"]
        if not prorates or subscription["status"] == "trialing":
            return []
        left = lambda amount: amount * (end - now) // max(end - start, 1)
        same = (price["id"], quantity) == (item["price"]["id"], item["quantity"])
        return [] if same else [
            self.line_item(-left(item["price"]["unit_amount"] * item["quantity"]), 1, "Unused time", (now, end), {}),
            self.line_item(left(price["unit_amount"] * quantity), quantity, "Remaining time", (now, end), {})]

    def change(self, id, given):
        subscription = self.find("subscription", id)
        if subscription["status"] in ("canceled", "incomplete_expired"):
            raise Refused(400, "resource_missing", "A canceled subscription can only be read.")
        if "cancel_at_period_end" in given:
            ends = given["cancel_at_period_end"] == "true"
            end = subscription["items"]["data"][0]["current_period_end"]
            subscription.update(cancel_at_period_end=ends, cancel_at=end if ends else None)
        if given.get("trial_end") == "now" and subscription["status"] == "trialing":
            now, item = self.now(), subscription["items"]["data"][0]
            end = later(now, item["price"]["recurring"]["interval"], 1)
            self.hidden[id].update(anchor=now, cycles=1)
            item.update(current_period_start=now, current_period_end=end)
            subscription.update(status="active", trial_end=now)
            self.collect(self.invoice(subscription, "subscription_update", (now, now), [self.line(subscription, now, end)])["id"])
            self.at_time(end, "renew", id)
        if "items" in given:
            wanted = list(given["items"].values())[0]
            if wanted.get("id") != subscription["items"]["data"][0]["id"]:
                raise missing("subscription item")
            item = subscription["items"]["data"][0]
            price, quantity = self.find("price", wanted["price"]), int(wanted.get("quantity", 1))
            lines = self.proration(subscription, price, quantity, given.get("proration_behavior") == "always_invoice")
            item.update(price=price, quantity=quantity)
            if lines:
                now = self.now()
                self.collect(self.invoice(subscription, "subscription_update", (now, now), lines)["id"])
        self.emit("customer.subscription.updated", subscription)
        return subscription

    def refund(self, given, account):
        charge = self.objects[self.find("payment_intent", given["payment_intent"], account)["latest_charge"]]
        left = charge["amount"] - charge["amount_refunded"]
        amount = int(given.get("amount", left))
        if not 0 < amount <= left:
            raise Refused(400, "charge_already_refunded", "More than what is left of the charge.")
        charge["amount_refunded"] += amount
        charge["refunded"] = amount == left
        if given.get("refund_application_fee") == "true" and charge["application_fee"]:
            fee = self.objects[charge["application_fee"]]
            fee["amount_refunded"] = fee["amount"] * charge["amount_refunded"] // charge["amount"]
            fee["refunded"] = fee["amount_refunded"] == fee["amount"]
        refund = self.make("refund", "re", account, amount=amount, status="succeeded", charge=charge["id"],
                           payment_intent=given["payment_intent"], currency=charge["currency"], created=self.now(),
                           metadata=given.get("metadata", {}))
        self.emit("refund.created", refund, account)
        self.emit("charge.refunded", charge, account)
        return refund

    def onboard(self, id, outcome):
        account = self.objects[id]
        done = outcome == "complete"
        reason = {"complete": None, "review": "requirements.pending_verification", "restrict": "requirements.past_due",
                  "reject": "rejected.other"}[outcome]
        due = ["individual.verification.document"] if outcome == "restrict" else []
        account.update(details_submitted=True, charges_enabled=done, payouts_enabled=done)
        account["requirements"].update(currently_due=due, past_due=due, disabled_reason=reason)
        self.emit("account.updated", account, id)

    def taken(self, events):
        for _, body in events:
            event = json.loads(body)
            if event["type"] == "invoice.created":
                self.at_time(self.now() + 3600, "collect", event["data"]["object"]["id"])

    # Requests.

    def answer(self, verb, path, given, account):
        parts, expand = path.strip("/").split("/")[1:], list(given.get("expand", {}).values())
        if account:
            self.find("account", account)
        match verb, parts:
            case "POST", ["customers"]:
                made = self.make("customer", "cus", name=given.get("name"), email=given.get("email"), created=self.now(),
                                 livemode=False, metadata=given.get("metadata", {}))
            case "POST", ["prices"]:
                made = self.make("price", "price", unit_amount=int(given["unit_amount"]), currency=given["currency"],
                                 active=True, created=self.now(), livemode=False, metadata={}, type="recurring",
                                 billing_scheme="per_unit", nickname=None, product=f"prod_{self.count}",
                                 recurring={"interval": given["recurring"]["interval"], "interval_count": 1,
                                            "usage_type": "licensed", "meter": None, "trial_period_days": None})
            case "GET", ["prices", id]:
                made = self.find("price", id)
            case "POST", ["checkout", "sessions"]:
                made = self.checkout(given, account)
            case "GET", ["checkout", "sessions", id]:
                made = self.find("checkout.session", id, account)
            case "POST", ["checkout", "sessions", id, "expire"]:
                made = self.find("checkout.session", id, account)
                if made["status"] != "open":
                    raise Refused(400, "session_not_open", "Only an open session can expire.")
                self.expire(id)
            case "POST", ["billing_portal", "sessions"]:
                self.find("customer", given["customer"])
                made = self.make("billing_portal.session", "bps", customer=given["customer"], created=self.now(),
                                 livemode=False, return_url=given.get("return_url"), url="https://portal.example.test/")
            case "GET", ["subscriptions", id]:
                made = self.find("subscription", id)
            case "POST", ["subscriptions", id]:
                made = self.change(id, given)
            case "DELETE", ["subscriptions", id]:
                made = self.find("subscription", id)
                if made["status"] == "canceled":
                    raise missing("subscription")
                self.cancel(made)
            case "POST", ["invoices", "create_preview"]:
                subscription = self.find("subscription", given["subscription"])
                wanted = list(given["subscription_details"]["items"].values())[0]
                prorates = given["subscription_details"].get("proration_behavior") == "always_invoice"
                lines = self.proration(subscription, self.find("price", wanted["price"]), int(wanted["quantity"]), prorates)
                total = sum(line["amount"] for line in lines)
                return {"object": "invoice", "currency": subscription["currency"], "total": total,
                        "amount_due": max(total, 0), "lines": listing(lines)}
            case "GET", ["invoices", id]:
                made = self.find("invoice", id)
            case "POST", ["invoiceitems"]:
                invoice = self.find("invoice", given["invoice"])
                if invoice["status"] != "draft":
                    raise Refused(400, "invoice_not_editable", "This invoice is no longer editable.")
                if invoice["customer"] != given["customer"]:
                    raise Refused(400, "customer_mismatch", "The invoice is another customer's.")
                made = self.make("invoiceitem", "ii", amount=int(given["amount"]), currency=given["currency"],
                                 customer=given["customer"], date=self.now(), description=given.get("description"),
                                 discountable=False, invoice=given["invoice"], livemode=False, proration=False, quantity=1,
                                 metadata=given.get("metadata", {}),
                                 period={"start": invoice["period_start"], "end": invoice["period_end"]})
                period = (invoice["period_start"], invoice["period_end"])
                line = self.line_item(made["amount"], 1, made["description"], period, made["metadata"])
                invoice["lines"]["data"].append(line)
                self.add_up(invoice)
            case "GET", ["invoiceitems"]:
                return listing([self.shown(one) for one in self.of("invoiceitem", invoice=given["invoice"])])
            case "GET", ["refunds"]:
                found = self.of("refund", payment_intent=given["payment_intent"])
                return listing([self.shown(one) for one in found if self.owner[one["id"]] == account])
            case "GET", [("payment_intents" | "charges" | "refunds" | "disputes" | "payouts") as kind, id]:
                made = self.find(kind[:-1], id, account)
            case "POST", ["refunds"]:
                made = self.refund(given, account)
            case "GET", ["events"]:
                since = int(given.get("created", {}).get("gte", 0))
                all = [one for one in self.of("event") if one["created"] >= since and "account" not in one][::-1]
                if given.get("starting_after"):
                    all = all[[one["id"] for one in all].index(given["starting_after"]) + 1:]
                most = int(given.get("limit", 10))
                return {**listing(all[:most]), "has_more": len(all) > most}
            case "POST", ["accounts"]:
                made = self.make("account", "acct", country=given.get("country"), email=given.get("email"),
                                 business_profile={"name": given.get("business_profile", {}).get("name")},
                                 default_currency="usd", charges_enabled=False, payouts_enabled=False, created=self.now(),
                                 details_submitted=False, metadata={}, type="none",
                                 requirements={"currently_due": ["external_account"], "past_due": [], "eventually_due": [],
                                               "pending_verification": [], "alternatives": [], "errors": [],
                                               "current_deadline": None, "disabled_reason": "requirements.past_due"})
            case "GET", ["accounts", id]:
                made = self.find("account", id)
            case "POST", ["account_links"]:
                self.find("account", given["account"])
                return {"object": "account_link", "created": self.now(), "expires_at": self.now() + 300,
                        "url": f"https://onboard.example.test/{given['account']}"}
            case "POST", ["accounts", id, "login_links"]:
                self.find("account", id)
                return {"object": "login_link", "created": self.now(), "url": "https://dashboard.example.test/"}
            case _:
                raise Refused(404, "url_invalid", f"Unrecognized request URL ({verb} {path}).")
        return self.shown(made, expand)

    def request(self, verb, path, pairs, headers):
        """The status, the headers and the body of an answer. None: the connection is cut."""
        key, account = headers.get("idempotency-key"), headers.get("stripe-account") or ""
        self.requests.append({"verb": verb, "path": path, "key": key, "account": account})
        fault = self.faults.pop(0) if self.faults else None
        if fault == "before":
            return 500, {}, error("It broke before anything happened.")
        if fault == "busy":
            return 429, {"retry-after": "1"}, error("Too many requests.")
        if headers.get("stripe-version") != stripe.api_version:
            self.wrong.append(f"{verb} {path}: version {headers.get('stripe-version')}")
        wrong, kind = judge.request_wrong(verb, path, pairs)
        self.wrong.extend(wrong)
        self.judged.add(kind)
        print_of = json.dumps([verb, path, sorted(pairs), account])
        if verb == "POST" and key in self.keys:
            first, answer = self.keys[key]
            if first != print_of:
                said = "Keys for idempotent requests can only be used with the same parameters they were first used with."
                return 400, {}, {"error": {"type": "idempotency_error", "message": said}}
            return None if fault == "reset" else (answer[0], {"idempotent-replayed": "true"}, answer[1])
        try:
            if wrong:
                raise Refused(400, "parameter_unknown", "; ".join(wrong))
            body = self.answer(verb, path, judge.nest(pairs), account)
            self.look(body, f"{verb} {path}")
            answer = 200, body
        except Refused as refused:
            answer = refused.status, refused.body
        if fault == "after":
            answer = 500, error("It broke after it took effect.")
        if verb == "POST" and key:
            self.keys[key] = print_of, answer
        return None if fault == "reset" else (answer[0], {}, answer[1])

    def look(self, body, at):
        if body["object"] == "list":
            for one in body["data"]:
                self.look(one, at)
        elif body["object"] in CLASSES:
            self.judge(body, CLASSES[body["object"]], at)

    def pull(self, name, given):
        """What tests do."""
        match name:
            case "clock":
                self.pass_time(given["at"] if "at" in given else self.now() + given["advance"])
                return {"at": self.now()}
            case "pay":
                self.pay(given["session"], given.get("card", "works"))
            case "card":
                for subscription in self.of("subscription", customer=given["customer"]):
                    self.hidden[subscription["id"]]["card"] = given["card"]
                    for invoice in self.of("invoice", status="open"):
                        if self.subscription_of(invoice) is subscription:
                            self.collect(invoice["id"])
            case "onboard":
                self.onboard(given["account"], given["outcome"])
            case "faults":
                self.faults = list(given["faults"])
            case "events":
                self.taken(self.log[given.get("from", 0):])
                new = [{"account": account, "body": body, "header": judge.sign(body, given["secret"], given["at"])}
                       for account, body in self.log[given.get("from", 0):]]
                return {"events": new, "next": len(self.log)}
            case "hook":
                self.hook = given
            case "count":
                kinds = [one["object"] for one in self.objects.values()]
                return {kind: kinds.count(kind) for kind in set(kinds)}
            case "objects":
                return {"objects": self.of(given["kind"])}
            case "wrong":
                return {"wrong": self.wrong, "judged": sorted(kind for kind in self.judged if kind), "faults": self.faults,
                        "version": stripe.api_version, "requests": self.requests}
        return {}


def all_equal(object, fields):
    return all(object.get(name) == value for name, value in fields.items())


def listing(data):
    return {"object": "list", "url": "/v1/", "has_more": False, "data": data}


def error(message):
    return {"error": {"type": "api_error", "message": message}}


def deliver(processor):
    """Sends events to the webhook that was named, in order, until each was taken; where it is told to, some twice or never."""
    place = 0
    while True:
        time.sleep(0.02)
        with processor.lock:
            hook, waits = processor.hook, processor.log[place:]
            if hook is not None:
                processor.taken(waits)
        if hook is None:
            continue
        for account, body in waits:
            place += 1
            chance = random.random()
            if account or (hook.get("loses") and chance < 0.2):
                continue
            for _ in range(2 if hook.get("doubles") and chance > 0.7 else 1):
                for _ in range(200):
                    header = judge.sign(body, hook["secret"], int(time.time()))
                    ask = urllib.request.Request(hook["url"], body.encode(), {
                        "stripe-signature": header, "content-type": "application/json"})
                    try:
                        with urllib.request.urlopen(ask, timeout=5) as answer:
                            if answer.status == 200:
                                break
                    except OSError:
                        time.sleep(0.05)
                        with processor.lock:
                            hook = processor.hook or hook


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        body, url = self.rfile.read(length), urlsplit(self.path)
        processor, headers = self.server.processor, {}
        if url.path.startswith("/_/"):
            with processor.lock:
                try:
                    status, said = 200, processor.pull(url.path[3:], json.loads(body or b"{}"))
                except Refused as refused:
                    status, said = refused.status, refused.body
        else:
            with processor.lock:
                waits = processor.faults.pop(0) if processor.faults[:1] in (["hang"], ["slow"], ["late"]) else ""
            if waits in ("hang", "slow"):
                time.sleep(60 if waits == "hang" else 0.3)
            text = body.decode() if self.command == "POST" else url.query
            with processor.lock:
                processor.pass_time(processor.now())
                answer = processor.request(self.command, url.path, parse_qsl(text, keep_blank_values=True), self.headers)
            if waits == "late":
                time.sleep(0.3)
            if answer is None:
                self.close_connection = True
                self.connection.close()
                return
            status, headers, said = answer
        text = json.dumps(said).encode()
        self.send_response(status)
        for name, value in {**headers, "content-type": "application/json", "content-length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_):
        pass


def serve(port, at):
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.processor = Processor(at)
    threading.Thread(target=deliver, args=(server.processor,), daemon=True).start()
    return server


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = serve(port, int(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
