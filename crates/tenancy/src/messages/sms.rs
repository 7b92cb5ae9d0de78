//! Codes by text message: stored in the transaction that causes them, sent at once, and budgeted, because every
//! message costs the operator money and an attacker may be paid for it (SMS pumping).
use std::time::Duration;

use data_encoding::BASE64;
use db::Tx;
use kernel::{
    Janua,
    id::Id,
    jobs::{self, Job, Later},
    ports::SendError,
};
use serde::{Deserialize, Serialize};

use crate::{
    enter::Visitor,
    ids::AccountId,
    messages::budget,
    once::{self, Purpose},
};

/// How many messages an hour go to one number, and are asked for from one network.
const PER_NUMBER: u32 = 5;
const PER_NETWORK: u32 = 10;

/// A number in E.164 form, and the country it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phone {
    pub number: String,
    country: String,
}

impl Phone {
    /// Parses a number that begins with a plus and is valid in its country.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let parsed = text.starts_with('+').then(|| phonenumber::parse(None, text).ok()).flatten()?;
        let country = parsed.country().id().map_or_else(|| parsed.code().value().to_string(), |id| format!("{id:?}"));
        let number = parsed.format().mode(phonenumber::Mode::E164).to_string();
        parsed.is_valid().then_some(Self { number, country })
    }
}

/// Sends a code for a purpose, in place of all that were sent for it before; `false` when there were too many already.
pub async fn send_code(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    account: AccountId,
    phone: &Phone,
    purpose: Purpose,
) -> db::Result<bool> {
    let now = janua.clock.now();
    if !budget::spend(tx, janua, "number", &phone.number, PER_NUMBER).await?
        || !budget::spend_by_network(tx, janua, "network", visitor.client, PER_NETWORK).await?
        || !budget::spend(tx, janua, "country", &phone.country, janua.config.of::<crate::Settings>().sms_per_country)
            .await?
    {
        return Ok(false);
    }
    once::void(tx, purpose, account, now).await?;
    let token = once::issue(tx, janua, purpose, Some(account), phone.number.as_bytes()).await?;
    let code = once::add_code(tx, janua, &token, account, purpose.life).await?;
    let host = janua.config.base_url().split("://").nth(1).unwrap_or_default().to_owned();
    // The last line lets a phone fill the code in, on our pages only (origin-bound one-time codes).
    let text = format!("{0} is your code for {host}. Do not share it.\n\n@{host} #{0}", code.expose());
    let message = Message { to: phone.number.clone(), text };
    let plain = serde_json::to_vec(&message).unwrap_or_default();
    let job = SendSms { sealed: BASE64.encode(&janua.vault.seal(PURPOSE, PLACE, &plain)) };
    jobs::enqueue(tx, janua, now, &job).await?;
    Ok(true)
}

#[derive(Serialize, Deserialize)]
struct Message {
    to: String,
    text: String,
}

/// A code sent to a phone to sign in with it.
pub const SIGN_IN: Purpose = Purpose::new("sms_sign_in", Duration::from_mins(5));

const PURPOSE: &str = "sms";
const PLACE: &str = "job:payload";

/// A message as it waits: sealed, because of its code.
#[derive(Serialize, Deserialize)]
pub struct SendSms {
    sealed: String,
}

impl Job for SendSms {
    const KIND: &'static str = "sms.send";
    /// After that many tries the code has expired anyway.
    const TRIES: u32 = 5;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let opened = BASE64.decode(self.sealed.as_bytes()).ok();
        let opened = opened.and_then(|sealed| janua.vault.open(PURPOSE, PLACE, &sealed).ok());
        let message = opened.and_then(|plain| serde_json::from_slice::<Message>(&plain).ok());
        let Message { to, text } = message.ok_or_else(|| Later::give_up("the message cannot be opened"))?;
        let id = Id::<Message>::new(&janua.entropy, janua.clock.now()).to_string();
        janua.sms.send(&id, &to, &text).await.map_err(|error| match error {
            SendError::Away(cause) | SendError::Broken(cause) | SendError::Later(cause) => Later::retry(cause),
            SendError::Never(cause) => Later::give_up(cause),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_that_somebody_could_have() {
        for (typed, number) in [
            ("+41 44 668 18 00", "+41446681800"),
            ("+1 (650) 253-0000", "+16502530000"),
            (" +49 30 901820 ", "+4930901820"),
        ] {
            assert_eq!(Phone::parse(typed).map(|phone| phone.number).as_deref(), Some(number), "{typed}");
        }
        for wrong in
            ["", "044 668 18 00", "+", "+1", "+999123456789", "+41 44 668", "+1 650 253 0000 0000 000", "abc"]
        {
            assert_eq!(Phone::parse(wrong), None, "{wrong}");
        }
        assert_ne!(
            Phone::parse("+16502530000").unwrap().country,
            Phone::parse("+14165550123").map_or_else(String::new, |p| p.country)
        );
    }
}
