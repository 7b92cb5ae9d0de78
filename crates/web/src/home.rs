//! Where people begin: the page at `/`, and where they land after signing in without a place to go.
use axum::{extract::State, http::StatusCode, response::Response};
use identity::{first_owner, policy};
use kernel::{Janua, fault::Result, http::Routes};
use minijinja::context;
use tenancy::{
    accounts::Account,
    enter::{Browser, runs_platform},
    orgs::Membership,
};
use url::{Position, Url};

use crate::{
    me::Me,
    page::{go, page, pages, shown},
};

pub fn routes() -> Routes {
    pages("pages").get("/", home_page, "the first page, with links to sign in and sign up").get(
        "/sign-in/done",
        signed_in,
        "redirect a signed-in user to the start page",
    )
}

const CONSOLE: &str = "/console";
const ACCOUNT: &str = "/account";

/// Where a person lands after signing in without a place to go: builders in the console, others in their account.
/// Platform owners and members of an organization build; whoever creates an app is a member of the organization it is in.
pub async fn home_of(janua: &Janua, account: &Account) -> &'static str {
    let builds = runs_platform(janua, account)
        || Membership::all_of(&janua.db, account.id).await.is_ok_and(|memberships| !memberships.is_empty());
    if builds { CONSOLE } else { ACCOUNT }
}

/// For the script of a passkey, which does not know.
async fn signed_in(me: Me) -> Response {
    me.keeps(go(home_of(&me.janua, me.account()).await))
}

async fn home_page(State(janua): State<Janua>, who: Browser) -> Response {
    shown(&janua, home(&janua, who).await)
}

/// What the page at `/` says; the console says the same while nobody owns the installation.
async fn home(janua: &Janua, who: Browser) -> Result<Response> {
    if let Some(page) = unclaimed(janua).await? {
        return Ok(page);
    }
    let (home, name) = match who.own() {
        Some(session) => {
            let account = session.account();
            let name = account.email.clone().unwrap_or_else(|| account.name.clone());
            (Some(home_of(janua, account).await), Some(name))
        }
        None => (None, None),
    };
    let may_sign_up = policy::refusal(janua).is_none();
    let content = context! { is_unclaimed => false, home, name, host => host(janua), may_sign_up };
    Ok(page(janua, StatusCode::OK, "home.html", content))
}

/// The page of an installation without an owner: it says where the link is, and never the link itself.
pub async fn unclaimed(janua: &Janua) -> Result<Option<Response>> {
    let is_unclaimed = first_owner::link(janua).await?.is_some();
    let content = context! { is_unclaimed, home => (), name => (), host => host(janua) };
    Ok(is_unclaimed.then(|| page(janua, StatusCode::OK, "home.html", content)))
}

fn host(janua: &Janua) -> String {
    let base = Url::parse(&janua.config.base_url()).ok();
    base.map(|base| base[Position::BeforeHost..Position::AfterPort].to_owned()).unwrap_or_default()
}
