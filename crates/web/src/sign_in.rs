//! Signing in: the password, then the second factor where there is one, then on to wherever somebody was going.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::{
    factors::gate,
    oauth::request::{Reading, Request},
    password,
};
use kernel::{App, email::Email, fault::Result, http::Routes};
use minijinja::context;
use tenancy::{
    enter::{Delivery, Visitor},
    factors::Factor,
    once::TOKEN_SPENT,
    sign_in::{Entered, MfaChallenge, Person},
};

use crate::{
    form::{Fields, OwnPage},
    page::{drawn, error, go, local, note, page_onward, parameter, said, status_of},
};

pub fn routes() -> Routes {
    let routes = Routes::new("pages").body_limit(64 * 1024).get("/sign-in", sign_in_page, "the page to sign in at");
    let routes = drawn(routes).post("/sign-in", sign_in, "what the sign-in page sends");
    let routes = drawn(routes).post("/sign-in/factor", prove_factor, "what the page of the second factor sends");
    drawn(routes)
}

/// What somebody was about to do when they were asked to sign in.
struct Onward {
    /// A place of ours; empty when there is none.
    to: String,
    request: Option<Box<Request>>,
}

impl Onward {
    async fn read(app: &App, to: &str) -> Self {
        let to = local(app, to).unwrap_or_default();
        let request = match to.strip_prefix("/oauth/authorize?") {
            Some(query) => Request::read(app, query).await.ok(),
            None => None,
        };
        let request = request.and_then(|reading| match reading {
            Reading::Good(request) => Some(request),
            Reading::Refused(_) => None,
        });
        Self { to, request }
    }

    fn leads_to(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.redirect_uri.as_str())
    }

    fn sign_in_page(&self, app: &App, status: StatusCode, email: &str, wrong: Option<String>) -> Response {
        let client = self.request.as_ref().map(|request| request.client.name.clone());
        let hint = self.request.as_ref().and_then(|request| request.login_hint.as_deref()).unwrap_or_default();
        let email = if email.is_empty() { hint } else { email };
        let content = context! { client, email, onward => &self.to, wrong };
        page_onward(app, status, "sign_in.html", content, self.leads_to())
    }

    fn factor_page(
        &self,
        app: &App,
        status: StatusCode,
        hint: &str,
        ticket: &str,
        wrong: Option<String>,
    ) -> Response {
        let content = context! { hint, ticket, onward => &self.to, wrong };
        page_onward(app, status, "factor.html", content, self.leads_to())
    }

    /// In, with cookies, and on.
    fn enter(&self, app: &App, person: &Person) -> Result<Response> {
        let (_, cookies) = person.hand_out(app)?;
        let mut response = match self.to.as_str() {
            "" => note(app, "You are signed in", "You can close this page."),
            to => go(to),
        };
        response.headers_mut().extend(cookies);
        Ok(response)
    }
}

async fn sign_in_page(State(app): State<App>, RawQuery(query): RawQuery) -> Response {
    let to = parameter(query.as_deref(), "continue");
    Onward::read(&app, &to).await.sign_in_page(&app, StatusCode::OK, "", None)
}

async fn sign_in(State(app): State<App>, _: OwnPage, visitor: Visitor, form: Fields) -> Response {
    let onward = Onward::read(&app, form.get("continue")).await;
    let typed = form.get("email");
    let Some(email) = Email::parse(typed) else {
        let wrong = Some("This is not an email address.".to_owned());
        return onward.sign_in_page(&app, StatusCode::BAD_REQUEST, typed, wrong);
    };
    let entered = password::sign_in(&app, &visitor, &email, &form.secret("password"), Delivery::Cookie).await;
    let answer = entered.and_then(|entered| match entered {
        Entered::In(person) => onward.enter(&app, &person),
        Entered::Waiting(challenge) => {
            Ok(onward.factor_page(&app, StatusCode::OK, &hint(&challenge), &challenge.mfa_ticket, None))
        }
    });
    answer.unwrap_or_else(|fault| onward.sign_in_page(&app, status_of(&fault), typed, Some(said(&fault))))
}

/// What the person can prove, in words.
fn hint(challenge: &MfaChallenge) -> String {
    let has = |factor| challenge.factors.contains(&factor);
    let phone = challenge.sms_phone_suffix.as_deref().unwrap_or_default();
    let known = [
        (has(Factor::Totp), "the code your authenticator app shows".to_owned()),
        (has(Factor::Sms) && !has(Factor::Totp), format!("the code we sent to the number that ends in {phone}")),
        (has(Factor::Recovery), "one of your recovery codes".to_owned()),
    ];
    let known: Vec<_> = known.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text).collect();
    format!("Type {}.", known.join(", or "))
}

async fn prove_factor(State(app): State<App>, _: OwnPage, visitor: Visitor, form: Fields) -> Response {
    let onward = Onward::read(&app, form.get("continue")).await;
    let (ticket, code) = (form.secret("ticket"), form.secret("code"));
    let passed = gate::pass(&app, &visitor, &ticket, &code, None, form.says("trust")).await;
    match passed.and_then(|person| onward.enter(&app, &person)) {
        Ok(response) => response,
        // The ticket is gone: from the beginning.
        Err(fault) if fault.code() == TOKEN_SPENT => {
            let wrong = Some("That took too long or too many tries. Sign in again.".to_owned());
            onward.sign_in_page(&app, status_of(&fault), "", wrong)
        }
        Err(fault) if fault.code().status < 500 => {
            let hint: String = form.get("hint").chars().take(300).collect();
            onward.factor_page(&app, status_of(&fault), &hint, form.get("ticket"), Some(said(&fault)))
        }
        Err(fault) => error(&app, &fault),
    }
}
