//! Objects of the payment processor, as its webhooks and answers have them.
use commerce::payments::read::{Account, CheckoutSession, Dispute, Event, Invoice, Payment, Subscription};
use serde_json::Value;

/// Every object is read as each kind: a wrong one is refused by name, and no number overflows.
pub fn processor_object(data: &[u8]) -> bool {
    let Ok(object) = serde_json::from_slice::<Value>(data) else { return false };
    let event = Event::read(&object);
    if let Some(event) = &event {
        assert_eq!(Some(event.id.as_str()), object["id"].as_str().or_else(|| object["id"]["id"].as_str()));
    }
    let invoice = Invoice::read(&object);
    if let Ok(invoice) = &invoice {
        let lines = object.pointer("/lines/data").and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(invoice.lines.len(), lines, "no line is lost");
        assert!(invoice.lines.iter().all(|line| line.quantity > 0));
    }
    let subscription = Subscription::read(&object);
    if let Ok(subscription) = &subscription {
        assert!(subscription.quantity > 0);
    }
    let others = [
        CheckoutSession::read(&object).is_ok(),
        Payment::read(&object).is_ok(),
        Dispute::read(&object).is_ok(),
        Account::read(&object).is_ok(),
    ];
    event.is_some() || invoice.is_ok() || subscription.is_ok() || others.contains(&true)
}
