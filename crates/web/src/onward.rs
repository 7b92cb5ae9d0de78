//! What somebody was about to do when they were asked to sign in, and how they get there in the end.
use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use db::Reach as Notice;
use identity::{
    destination::Destination,
    oauth::{
        clients::Reach,
        request::{Reading, Request},
    },
    password::EMAIL_NOT_VERIFIED,
    policy, social,
};
use kernel::{
    Janua,
    clock::is_time_zone,
    crypto::Secret,
    fault::{Fault, INVALID, Result},
    transact,
};
use minijinja::{Value, context};
use tenancy::{
    accounts::{Account, AccountId, factors::Factor},
    apps::ApplicationId,
    enter::{ACCOUNT_TOPIC, cookies},
    once::Purpose,
    sessions::sign_in::{CompletedSignIn, Entered, MfaChallenge},
};

use crate::{
    brand::Brand,
    captcha,
    form::Fields,
    home::home_of,
    page::{by_field, go, local, page_onward, parameter},
    waiting::WaitingSignIn,
};

pub struct Onward {
    /// A place of ours; empty when there is none.
    pub to: String,
    request: Option<Box<Request>>,
    /// How somebody last signed in with this browser.
    last_method: String,
    /// The time zone of this browser, where the script of the page said so.
    time_zone: Option<String>,
}

/// How somebody last signed in with this browser: a preference, which proves nothing.
const LAST_METHOD: &str = "janua_last_method";
const REMEMBERED_FOR: u32 = 365 * 24 * 60 * 60;

impl Onward {
    pub async fn read(janua: &Janua, headers: &HeaderMap, to: &str) -> Self {
        let to = local(janua, to).unwrap_or_default();
        let request = match to.strip_prefix("/oauth/authorize?") {
            Some(query) => Request::read(janua, Reach::Known, query).await.ok(),
            None => None,
        };
        let request = request.and_then(|reading| match reading {
            Reading::Good(request) => Some(request),
            Reading::Refused(_) => None,
        });
        let last = cookies::read(headers, [LAST_METHOD, LAST_METHOD]);
        let last_method = last.map(|last| last.expose().to_owned()).filter(|last| is_method(janua, last));
        Self { to, request, last_method: last_method.unwrap_or_default(), time_zone: None }
    }

    /// As the parameter `continue` says.
    pub async fn asked(janua: &Janua, headers: &HeaderMap, query: Option<&str>) -> Self {
        Self::read(janua, headers, &parameter(query, "continue")).await
    }

    /// As it was when the mail with this secret was requested; also whether that was in the browser that holds `browser`.
    pub async fn of_mail(
        janua: &Janua,
        headers: &HeaderMap,
        (purpose, token): (Purpose, &Secret),
        browser: Option<&Secret>,
    ) -> Result<(Self, bool)> {
        let destination = Destination::of(janua, purpose, token).await?;
        let onward = Self::read(janua, headers, &destination.path).await;
        Ok((onward, destination.began_in(browser)))
    }

    pub fn nowhere() -> Self {
        Self::to_page("")
    }

    /// To a page of ours that needs no look at it.
    pub fn to_page(to: &str) -> Self {
        Self { to: to.to_owned(), request: None, last_method: String::new(), time_zone: None }
    }

    /// From a form that says in which time zone its sender is.
    #[must_use]
    pub fn in_zone_of(self, form: &Fields) -> Self {
        let zone = Some(form.get("time_zone")).filter(|zone| is_time_zone(zone));
        Self { time_zone: zone.map(str::to_owned), ..self }
    }

    /// The app that the way leads to, if it belongs to an organization here.
    pub fn app(&self) -> Option<ApplicationId> {
        Some(self.request.as_ref()?.client.app.as_ref()?.id)
    }

    /// How the app looks that somebody is on the way to.
    fn brand(&self, janua: &Janua) -> Option<Brand> {
        self.request.as_ref().and_then(|request| Brand::of(janua, &request.client))
    }

    /// What every page on the way says about where it leads.
    pub fn described(&self, janua: &Janua) -> Value {
        let client = self.request.as_ref().map(|request| request.client.name.clone());
        context! { onward => &self.to, client, brand => self.brand(janua).as_ref() }
    }

    /// A page with a form that leads on, as far as the app.
    pub fn page(&self, janua: &Janua, status: StatusCode, name: &str, content: Value) -> Response {
        let content = context! { ..content, ..self.described(janua) };
        page_onward(janua, status, name, content, self.leads_to())
    }

    fn leads_to(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.redirect_uri.as_str())
    }

    pub fn sign_in_page(&self, janua: &Janua, status: StatusCode, email: &str, fault: Option<&Fault>) -> Response {
        self.sign_in_page_after(janua, status, email, fault, "")
    }

    /// With word of what was done just before.
    pub fn sign_in_page_after(
        &self,
        janua: &Janua,
        status: StatusCode,
        email: &str,
        fault: Option<&Fault>,
        done: &str,
    ) -> Response {
        let hint = self.request.as_ref().and_then(|request| request.login_hint.as_deref()).unwrap_or_default();
        let offered = social::offered(janua);
        let content = context! {
            email => if email.is_empty() { hint } else { email },
            providers => offered.iter().map(|one| context! { name => one.name, label => one.label }).collect::<Vec<_>>(),
            last => &self.last_method,
            done,
            may_sign_up => policy::refusal(janua).is_none(),
            is_unverified => fault.is_some_and(|fault| fault.code() == EMAIL_NOT_VERIFIED),
            ..refused(fault)
        };
        let places = offered.iter().map(|one| one.address.as_str()).chain(self.leads_to());
        let content = context! { ..content, ..self.described(janua) };
        page_onward(janua, status, "sign_in.html", content, places)
    }

    pub fn factor_page(
        &self,
        janua: &Janua,
        status: StatusCode,
        asked: Asked<'_>,
        fault: Option<&Fault>,
    ) -> Response {
        let Asked { hint, ticket, method } = asked;
        self.page(janua, status, "factor.html", context! { hint, ticket, method, ..refused(fault) })
    }

    /// In, or on to the page of the second factor. `method` is how the person signed in, to be remembered.
    pub async fn enter_or_ask(&self, janua: &Janua, entered: Entered, method: &str) -> Result<Response> {
        match entered {
            Entered::In(person) => self.enter(janua, &person, method).await,
            Entered::Refused(code) => Err(code.into()),
            Entered::Waiting(challenge) => {
                let (hint, method, to) = (hint(&challenge), method.to_owned(), self.to.clone());
                let waiting = WaitingSignIn { ticket: challenge.mfa_ticket.clone(), hint, method, to };
                Ok(waiting.remember(janua, go("/sign-in/factor")).unwrap_or_else(|| {
                    let asked = Asked { hint: &waiting.hint, ticket: &waiting.ticket, method: &waiting.method };
                    self.factor_page(janua, StatusCode::OK, asked, None)
                }))
            }
        }
    }

    /// In, with cookies, and on.
    pub async fn enter(&self, janua: &Janua, person: &CompletedSignIn, method: &str) -> Result<Response> {
        let (_, cookies) = person.hand_out(janua)?;
        if let Some(zone) = self.time_zone.as_deref().filter(|_| person.account.time_zone.is_none()) {
            note_time_zone(janua, person.account.id, zone).await;
        }
        let mut response = match self.to.as_str() {
            "" => go(home_of(janua, &person.account).await),
            to => go(to),
        };
        response.headers_mut().extend(cookies);
        if is_method(janua, method) {
            let line = format!("{LAST_METHOD}={method}; Path=/; SameSite=Lax; Max-Age={REMEMBERED_FOR}");
            if let Ok(line) = HeaderValue::try_from(line) {
                response.headers_mut().append(header::SET_COOKIE, line);
            }
        }
        Ok(response)
    }
}

/// Mails tell users in their own time when something happened. Nobody is kept out where that cannot be noted.
async fn note_time_zone(janua: &Janua, id: AccountId, zone: &str) {
    let noted: Result<()> = transact!(janua, async |tx| {
        if Account::note_time_zone(tx, id, zone).await? {
            tx.notify(Notice::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
        }
        Ok(())
    });
    if let Err(fault) = noted {
        crate::page::noted(&fault);
    }
}

fn is_method(janua: &Janua, name: &str) -> bool {
    ["password", "link", "passkey"].contains(&name) || social::offered(janua).iter().any(|one| one.name == name)
}

/// The fields of hosted forms that have a place for what is wrong with them.
const SHOWN: [&str; 4] = ["name", "email", "password", "code"];

/// What every form shows when something is wrong.
pub fn refused(fault: Option<&Fault>) -> Value {
    let errors = fault.map(by_field).unwrap_or_default();
    // What stands at a field is not repeated above the form.
    let is_said = !errors.is_empty() && errors.keys().all(|field| SHOWN.contains(&field.as_str()));
    let above = |fault: &Fault| match fault.code() {
        INVALID if is_said => "Check the highlighted fields.".to_owned(),
        _ => fault.above_form(),
    };
    let (challenge, challenge_for) = (fault.and_then(captcha::challenge), fault.and_then(captcha::action));
    context! { wrong => fault.map(above), errors, challenge, challenge_for }
}

/// What the page of the second factor says and keeps.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub hint: &'a str,
    pub ticket: &'a str,
    pub method: &'a str,
}

/// What the person can prove, in words.
fn hint(challenge: &MfaChallenge) -> String {
    let has = |factor| challenge.factors.contains(&factor);
    let phone = challenge.sms_phone_suffix.as_deref().unwrap_or_default();
    let known = [
        (has(Factor::Totp), "the code from your authenticator app".to_owned()),
        (has(Factor::Sms) && !has(Factor::Totp), format!("the code that we sent to the number ending in {phone}")),
        (has(Factor::Recovery), "a recovery code".to_owned()),
    ];
    let known: Vec<_> = known.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text).collect();
    format!("Enter {}.", known.join(", or "))
}
