//! Test cards. Any other number is refused before anything is stored or logged.

/// How a card behaves. Its number is never kept, only this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Card {
    Works,
    Declined,
    Insufficient,
    /// Asks its owner to confirm the payment.
    Confirms,
    /// Works now, and fails at the next renewal.
    FailsLater,
    /// Works, and is disputed after a minute.
    Disputed,
}

pub const CARDS: &[(&str, Card, &str)] = &[
    ("4242424242424242", Card::Works, "Succeeds"),
    ("4000000000000002", Card::Declined, "Is declined"),
    ("4000000000009995", Card::Insufficient, "Has insufficient funds"),
    ("4000002500003155", Card::Confirms, "Asks for confirmation"),
    ("4000000000000341", Card::FailsLater, "Succeeds now, fails at renewal"),
    ("4000000000000259", Card::Disputed, "Succeeds, is disputed after a minute"),
];

impl Card {
    pub fn of_number(number: &str) -> Option<Self> {
        let digits: String = number.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
        CARDS.iter().find(|(known, ..)| *known == digits).map(|(_, card, _)| *card)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Declined => "declined",
            Self::Insufficient => "insufficient",
            Self::Confirms => "confirms",
            Self::FailsLater => "fails_later",
            Self::Disputed => "disputed",
        }
    }

    pub fn of_name(name: &str) -> Self {
        CARDS.iter().map(|(_, card, _)| *card).find(|card| card.name() == name).unwrap_or(Self::Works)
    }

    pub fn last4(self) -> &'static str {
        CARDS.iter().find(|(_, card, _)| *card == self).map_or("4242", |(number, ..)| &number[12..])
    }

    /// Why it does not pay now; nothing when it does.
    pub fn refusal(self, is_renewal: bool) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Declined => Some(("card_declined", "Your card was declined.")),
            Self::Insufficient => Some(("insufficient_funds", "Your card has insufficient funds.")),
            Self::FailsLater if is_renewal => Some(("card_declined", "Your card was declined.")),
            _ => None,
        }
    }
}
