//! The outcome of a form of the account or the console. It survives one redirect: it is stored sealed, for the user who sent
//! the form, under a token that the page's URL carries, and reading it deletes it. So no secret is shown twice, a reload
//! repeats nothing, and any node can show it.
use std::{collections::BTreeMap, time::Duration};

use axum::http::StatusCode;
use data_encoding::BASE64URL_NOPAD;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, INVALID, Result},
    transact,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    enter::REAUTHENTICATION_REQUIRED,
    ids::AccountId,
    once::{self, Purpose},
};

use crate::{
    captcha,
    form::Fields,
    notices,
    page::{REFUSED, by_field, noted, status_of},
};

/// The parameter of a page's URL that names an outcome.
pub const PARAMETER: &str = "told";

/// How long an outcome waits for the browser to follow the redirect.
pub const OUTCOME: Purpose = Purpose::new("form_outcome", Duration::from_mins(5));

/// How long a form may bring back what its page showed ([`seal_shown`]).
const SHOWN_FOR: Duration = Duration::from_mins(30);

/// What was typed is not stored above this size. The rest of an outcome is small.
const MOST_TYPED: usize = 64 * 1024;

/// Fields of a form that say what to do; the others are the body of the request.
pub const OWN_FIELDS: [&str; 9] = ["call", "back", "form", "then", "show", "captcha", "done", "shown", "once"];

#[derive(Clone, Default, Serialize, Deserialize)]
pub struct FormOutcome {
    /// The name of the form on its page.
    pub form: String,
    /// What was done, in words.
    pub notice: Option<String>,
    /// What is wrong, in words.
    pub wrong: Option<String>,
    /// What is wrong with each field.
    pub errors: BTreeMap<String, String>,
    /// The proof of work that is asked for.
    pub challenge: Option<String>,
    /// Ways to prove who the user is, where a fresh proof is asked for.
    pub proofs: Vec<String>,
    /// What was typed, secrets excepted.
    pub typed: Map<String, Value>,
    /// The answer of the API, where the page shows it this once.
    pub answer: Value,
    /// The status of the answer.
    pub status: u16,
}

impl FormOutcome {
    /// The API did what the form asked for.
    pub fn of_success(form: &Fields, answer: Value) -> Self {
        Self {
            form: form.get("form").to_owned(),
            notice: notices::sentence(form.get("done"), &answer),
            answer: if form.says("show") { answer } else { Value::Null },
            status: 200,
            ..Self::default()
        }
    }

    /// The API refused. `shown` is what the page with the form showed before.
    pub fn of_fault(form: &Fields, fault: &Fault, shown: Value) -> Self {
        let is_secret =
            |name: &str| ["password", "code", "Password", "secret"].iter().any(|word| name.contains(word));
        let typed = form.pairs().filter(|(name, _)| !is_secret(name) && !OWN_FIELDS.contains(name));
        let typed: Vec<_> = typed.collect();
        let is_small = typed.iter().map(|(name, text)| name.len() + text.len()).sum::<usize>() <= MOST_TYPED;
        let mut kept = Map::new();
        for (name, text) in typed.into_iter().filter(|_| is_small) {
            // A list has a value for each box that was ticked.
            match kept.get_mut(name) {
                Some(Value::Array(list)) => list.push(text.into()),
                _ if name.ends_with(":list") => drop(kept.insert(name.to_owned(), Value::from(vec![text]))),
                _ => drop(kept.insert(name.to_owned(), text.into())),
            }
        }
        let methods = fault.extra("methods").and_then(Value::as_array).into_iter().flatten();
        let methods = methods.filter_map(Value::as_str).map(str::to_owned);
        let errors = match by_field(fault) {
            none if none.is_empty() => at_its_field(form, fault),
            errors => errors,
        };
        Self {
            form: form.get("form").to_owned(),
            notice: None,
            wrong: Some(above_form(form, fault, &errors)),
            errors,
            challenge: captcha::challenge(fault),
            proofs: methods.filter(|_| fault.code() == REAUTHENTICATION_REQUIRED).collect(),
            typed: kept,
            answer: shown,
            status: status_of(fault).as_u16(),
        }
    }

    /// The API refused a form with a file, whose fields cannot be shown again.
    pub fn refused(form: &str, fault: &Fault) -> Self {
        Self {
            form: form.to_owned(),
            wrong: Some(fault.above_form()),
            errors: by_field(fault),
            status: status_of(fault).as_u16(),
            ..Self::default()
        }
    }

    /// The API did what a form with a file asked for. `notice` is one of [`notices`].
    pub fn noted(form: &str, notice: &str) -> Self {
        Self {
            form: form.to_owned(),
            notice: notices::sentence(notice, &Value::Null),
            status: 200,
            ..Self::default()
        }
    }

    /// The status of the page that shows it.
    pub fn status(&self) -> StatusCode {
        let is_known = self.status == 200 || REFUSED.contains(&self.status);
        StatusCode::from_u16(self.status).ok().filter(|_| is_known).unwrap_or(StatusCode::BAD_REQUEST)
    }
}

/// A refusal that is about one field stands at it.
fn at_its_field(form: &Fields, fault: &Fault) -> BTreeMap<String, String> {
    let field = match fault.code().name {
        "wrong_code" | "invalid_code" => "code",
        "wrong_password" => "currentPassword",
        _ => return BTreeMap::new(),
    };
    let is_there = form.pairs().any(|(name, _)| name == field);
    is_there.then(|| (field.to_owned(), fault.code().says.to_owned())).into_iter().collect()
}

/// The sentence above the form. What is said at a field is not repeated.
fn above_form(form: &Fields, fault: &Fault, errors: &BTreeMap<String, String>) -> String {
    let has_field = |field: &str| form.pairs().any(|(name, _)| name.split(':').next() == Some(field));
    if errors.is_empty() {
        return fault.above_form();
    }
    let elsewhere: Vec<_> =
        errors.iter().filter(|(field, _)| !has_field(field)).map(|(_, says)| says.as_str()).collect();
    let is_said = fault.code() == INVALID || errors.values().any(|says| says == fault.code().says);
    let title = if is_said { "Check the highlighted fields." } else { fault.code().says };
    if elsewhere.is_empty() { title.to_owned() } else { format!("{title} {}", elsewhere.join(" ")) }
}

/// Stores an outcome for the redirect and answers its token. Nothing is lost but words where that fails.
pub async fn store(janua: &Janua, account: AccountId, outcome: &FormOutcome) -> Option<String> {
    let stored: Result<_> = async {
        let plain = serde_json::to_vec(outcome).unwrap_or_default();
        transact!(janua, async |tx| {
            once::drop_oldest(tx, OUTCOME, account).await?;
            Ok(once::issue(tx, janua, OUTCOME, Some(account), &plain).await?)
        })
    }
    .await;
    match stored {
        Ok(token) => Some(token.expose().to_owned()),
        Err(fault) => {
            noted(&fault);
            None
        }
    }
}

/// The outcome with this token, for the user it was stored for. It is there once.
pub async fn take(janua: &Janua, account: AccountId, token: &str) -> Option<FormOutcome> {
    let token = token.to_owned().into();
    let taken: Result<_> =
        transact!(janua, async |tx| Ok(once::take(tx, OUTCOME, account, &token, janua.clock.now()).await?));
    match taken {
        Ok(taken) => serde_json::from_slice(&taken?.aside(janua)?).ok(),
        Err(fault) => {
            noted(&fault);
            None
        }
    }
}

/// What a page shows, sealed for a hidden field: a form that is refused shows it again. It holds for one user and for a
/// while.
#[derive(Serialize, Deserialize)]
struct Shown {
    until: Timestamp,
    answer: Value,
}

fn place(account: AccountId) -> String {
    format!("form:shown:{account}")
}

pub fn seal_shown(janua: &Janua, account: AccountId, answer: &Value) -> String {
    let shown = Shown { until: janua.clock.now().plus(SHOWN_FOR), answer: answer.clone() };
    let plain = serde_json::to_vec(&shown).unwrap_or_default();
    BASE64URL_NOPAD.encode(&janua.vault.seal("form", &place(account), &plain))
}

pub fn open_shown(janua: &Janua, account: AccountId, sealed: &str) -> Value {
    let open = || {
        let sealed = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let plain = janua.vault.open("form", &place(account), &sealed).ok()?;
        let shown: Shown = serde_json::from_slice(&plain).ok()?;
        (shown.until > janua.clock.now()).then_some(shown.answer)
    };
    open().unwrap_or_default()
}
