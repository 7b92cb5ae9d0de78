//! Signing in: the password, then the second factor where there is one, then on to wherever somebody was going.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::{
    factors::gate,
    oauth::{
        clients::Reach,
        request::{Reading, Request},
    },
    password, policy, social,
};
use kernel::{
    Janua,
    fault::{Code, Fault, Result},
    http::Routes,
};
use minijinja::context;
use tenancy::{
    accounts::factors::Factor,
    apps::ApplicationId,
    enter::{Delivery, ToAdmit},
    once::TOKEN_SPENT,
    sessions::sign_in::{CompletedSignIn, Entered, MfaChallenge},
};

use crate::{
    brand::Brand,
    captcha,
    form::{Fields, OwnPage},
    page::{by_field, error, go, local, page_onward, pages, parameter, status_of},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-in", sign_in_page, "the page to sign in at")
        .post("/sign-in", sign_in, "what the sign-in page sends")
        .post("/sign-in/factor", prove_factor, "what the page of the second factor sends")
}

/// What somebody was about to do when they were asked to sign in.
pub struct Onward {
    /// A place of ours; empty when there is none.
    pub to: String,
    request: Option<Box<Request>>,
}

impl Onward {
    pub async fn read(janua: &Janua, to: &str) -> Self {
        let to = local(janua, to).unwrap_or_default();
        let request = match to.strip_prefix("/oauth/authorize?") {
            Some(query) => Request::read(janua, Reach::Known, query).await.ok(),
            None => None,
        };
        let request = request.and_then(|reading| match reading {
            Reading::Good(request) => Some(request),
            Reading::Refused(_) => None,
        });
        Self { to, request }
    }

    pub fn nowhere() -> Self {
        Self::to_page("")
    }

    /// To a page of ours that needs no look at it.
    pub fn to_page(to: &str) -> Self {
        Self { to: to.to_owned(), request: None }
    }

    /// The app that somebody is on the way to, if somebody here answers for it.
    pub fn app(&self) -> Option<ApplicationId> {
        Some(self.request.as_ref()?.client.app.as_ref()?.id)
    }

    /// How the app looks that somebody is on the way to.
    pub fn brand(&self, janua: &Janua) -> Option<Brand> {
        self.request.as_ref().and_then(|request| Brand::of(janua, &request.client))
    }

    fn leads_to(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.redirect_uri.as_str())
    }

    pub fn sign_in_page(&self, janua: &Janua, status: StatusCode, email: &str, fault: Option<&Fault>) -> Response {
        let client = self.request.as_ref().map(|request| request.client.name.clone());
        let hint = self.request.as_ref().and_then(|request| request.login_hint.as_deref()).unwrap_or_default();
        let offered = social::offered(janua);
        let content = context! {
            client,
            brand => self.brand(janua).as_ref(),
            email => if email.is_empty() { hint } else { email },
            onward => &self.to,
            may_sign_up => policy::refusal(janua).is_none(),
            providers => offered.iter().map(|one| context! { name => one.name, label => one.label }).collect::<Vec<_>>(),
            wrong => fault.map(Fault::above_form),
            errors => fault.map(by_field).unwrap_or_default(),
            challenge => fault.and_then(captcha::challenge),
        };
        let places = offered.iter().map(|one| one.address.as_str()).chain(self.leads_to());
        page_onward(janua, status, "sign_in.html", content, places)
    }

    fn factor_page(&self, janua: &Janua, status: StatusCode, asked: Asked<'_>, fault: Option<&Fault>) -> Response {
        let content = context! {
            hint => asked.hint,
            brand => self.brand(janua).as_ref(),
            ticket => asked.ticket,
            onward => &self.to,
            wrong => fault.map(Fault::above_form),
            challenge => fault.and_then(captcha::challenge),
        };
        page_onward(janua, status, "factor.html", content, self.leads_to())
    }

    /// In, or before the second factor.
    pub fn enter_or_ask(&self, janua: &Janua, entered: Entered) -> Result<Response> {
        match entered {
            Entered::In(person) => self.enter(janua, &person),
            Entered::Refused(code) => Err(code.into()),
            Entered::Waiting(challenge) => {
                let asked = Asked { hint: &hint(&challenge), ticket: &challenge.mfa_ticket };
                Ok(self.factor_page(janua, StatusCode::OK, asked, None))
            }
        }
    }

    /// In, with cookies, and on.
    fn enter(&self, janua: &Janua, person: &CompletedSignIn) -> Result<Response> {
        let (_, cookies) = person.hand_out(janua)?;
        let mut response = match self.to.as_str() {
            "" => go("/account"),
            to => go(to),
        };
        response.headers_mut().extend(cookies);
        Ok(response)
    }
}

async fn sign_in_page(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    let to = parameter(query.as_deref(), "continue");
    Onward::read(&janua, &to).await.sign_in_page(&janua, StatusCode::OK, "", None)
}

async fn sign_in(State(janua): State<Janua>, _: OwnPage, ToAdmit(mut visitor): ToAdmit, form: Fields) -> Response {
    let onward = Onward::read(&janua, form.get("continue")).await;
    let entered = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        let (email, typed) = (form.email()?, form.secret("password"));
        let entered = password::sign_in(&janua, &visitor, &email, &typed, Delivery::Cookie).await?;
        onward.enter_or_ask(&janua, entered)
    }
    .await;
    entered.unwrap_or_else(|fault| onward.sign_in_page(&janua, status_of(&fault), form.get("email"), Some(&fault)))
}

/// What the page of the second factor says and keeps.
#[derive(Clone, Copy)]
struct Asked<'a> {
    hint: &'a str,
    ticket: &'a str,
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

async fn prove_factor(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    form: Fields,
) -> Response {
    let onward = Onward::read(&janua, form.get("continue")).await;
    let entered = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        let (ticket, code) = (form.secret("ticket"), form.secret("code"));
        let person = gate::pass(&janua, &visitor, &ticket, &code, None, form.says("trust")).await?;
        onward.enter(&janua, &person)
    }
    .await;
    entered.unwrap_or_else(|fault| match fault.code() {
        // The ticket is gone: from the beginning.
        TOKEN_SPENT => onward.sign_in_page(&janua, status_of(&fault), "", Some(&TOO_LATE.into())),
        code if code.status >= 500 => error(&janua, &fault),
        _ => {
            let hint: String = form.get("hint").chars().take(300).collect();
            let asked = Asked { hint: &hint, ticket: form.get("ticket") };
            onward.factor_page(&janua, status_of(&fault), asked, Some(&fault))
        }
    })
}

const TOO_LATE: Code = Code::new(410, "too_late", "The code expired or was wrong too often. Sign in again.");
