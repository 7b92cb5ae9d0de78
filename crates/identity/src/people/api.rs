//! The routes of platform owners for accounts.
use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Json, Listed, MaybeJson, Page, Path, Query, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        Account, AccountId, HeldAccount,
        factors::Whole,
        password::{self, Hasher, WEAK_PASSWORD},
        search::{AccountLine, AccountState, Wanted},
    },
    apps::end_users::Search,
    email::Email,
    enter::{ACCOUNT_TOPIC, PlatformOwner, ToAdmit, runs_platform},
    events::By,
    messages::mail,
    once,
    orgs::{LAST_OWNER, OrgId},
    sessions::sign_in::Typed,
};

use super::{
    ACCOUNT_INVITE, ALREADY_VERIFIED, EMAIL_TAKEN, LAST_PLATFORM_OWNER, NO_EMAIL, OWN_ACCOUNT, acts,
    views::{PlatformUser, UserLine},
};
use crate::{
    BODY, account,
    events::{AccountCreated, AccountInvited, EmailChanged, EmailVerified, ProfileUpdated},
    magic_link::MAGIC_LINK,
    mails::{self, OwnerAct, OwnerActed},
    password::RESET_PASSWORD,
    proof::{self, Fresh},
    register::VERIFY_EMAIL,
};

pub fn routes() -> Routes {
    Routes::new("platform")
        .body_limit(BODY)
        .get("/admin/users", list_users, "accounts, newest first, or those that a search finds")
        .post("/admin/users", create_user, "create an account, and mail a link to choose a password")
        .fails(&[EMAIL_TAKEN, WEAK_PASSWORD])
        .get(
            "/admin/users/{userId}",
            get_user,
            "an account: profile, factors, sessions, organizations, apps, activity",
        )
        .fails(&[NOT_FOUND])
        .patch("/admin/users/{userId}", update_user, "change the name or the email of an account")
        .fails(&proof::REFUSALS)
        .fails(&[NOT_FOUND, EMAIL_TAKEN, OWN_ACCOUNT, LAST_PLATFORM_OWNER])
        .delete("/admin/users/{userId}", delete_user, "delete an account")
        .fails(&proof::REFUSALS)
        .fails(&[NOT_FOUND, OWN_ACCOUNT, LAST_PLATFORM_OWNER, LAST_OWNER])
        .post("/admin/users/{userId}/disable", disable_user, "end all sessions of an account and refuse its sign-ins")
        .fails(&[NOT_FOUND, OWN_ACCOUNT, LAST_PLATFORM_OWNER])
        .post("/admin/users/{userId}/enable", enable_user, "let a disabled account sign in again")
        .fails(&[NOT_FOUND])
        .post("/admin/users/{userId}/reset-factors", reset_factors, "remove all second factors and passkeys")
        .fails(&proof::REFUSALS)
        .fails(&[NOT_FOUND])
        .post(
            "/admin/users/{userId}/require-password",
            require_password,
            "remove the password and mail a link to choose another",
        )
        .fails(&[NOT_FOUND, NO_EMAIL])
        .post("/admin/users/{userId}/resend-verification", resend_verification, "mail the confirmation link again")
        .fails(&[NOT_FOUND, NO_EMAIL, ALREADY_VERIFIED])
        .delete("/admin/users/{userId}/sessions", end_sessions, "end all sessions of an account")
        .fails(&[NOT_FOUND])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Filter {
    /// How an email or a word of a name begins; with several words (three count), each of them. Without it, the newest
    /// account comes first; with it, what was found is in the order of the alphabet.
    #[schemars(length(max = 200))]
    search: Option<String>,
    state: Option<AccountState>,
    /// Members of this organization, the latest to join first.
    org_id: Option<OrgId>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlatformUsers {
    users: Vec<UserLine>,
    next_cursor: Option<String>,
}

async fn list_users(
    State(janua): State<Janua>,
    _owner: PlatformOwner,
    Query(Filter { search, state, org_id }): Query<Filter>,
    page: Page,
) -> Result<Json<PlatformUsers>> {
    let (text, wanted) = (search.unwrap_or_default(), Wanted { state, org: org_id });
    // A cursor counts for the same search alone.
    let scope = Scope::platform().found_by(&format!("{state:?} {org_id:?} {text}"));
    let found = match Search::read(&text) {
        None => {
            let fetch = async |below, most| AccountLine::page(&janua.db, wanted, &below, most).await;
            page.list(&janua, "accounts", scope, fetch, AccountLine::key).await?
        }
        Some(search) => {
            let fetch = async |below, most| AccountLine::search(&janua.db, &search, wanted, &below, most).await;
            page.list(&janua, "found-accounts", scope, fetch, AccountLine::key).await?
        }
    };
    let Listed { rows, next_cursor } = found;
    Ok(Json(PlatformUsers { users: rows.into_iter().map(|line| UserLine::of(&janua, line)).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewUser {
    email: Email,
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: String,
    /// Whether the owner knows that the email is the person's. Left out: no.
    #[serde(default)]
    email_verified: bool,
    /// Left out: the person has no password until they choose one.
    password: Option<Typed>,
    /// Mails a link to choose a password, good for seven days. It also proves the email.
    #[serde(default)]
    invite: bool,
}

async fn create_user(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Json(new): Json<NewUser>,
) -> Result<Json<PlatformUser>> {
    let (now, name) = (janua.clock.now(), new.name.trim());
    let password_hash = match &new.password {
        Some(typed) => {
            password::check("password", &typed.0, Some(&new.email), name)?;
            Some(janua.own::<Hasher>().hash(&janua.entropy, &typed.0).await?)
        }
        None => None,
    };
    let account = Account {
        password_hash,
        email_verified: new.email_verified,
        ..Account::new(AccountId::new(&janua.entropy, now), Some(&new.email), name, now)
    };
    let account = transact!(janua, async |tx| {
        let (account, is_new) = Account::ensure(tx, &account).await?;
        if !is_new {
            return Err(EMAIL_TAKEN.at("email", "email_taken", "belongs to another account"));
        }
        Account::establish(tx, account.id).await?;
        session.record_about(tx, &janua, account.id, &AccountCreated).await?;
        if new.email_verified {
            session.record_about(tx, &janua, account.id, &EmailVerified).await?;
        }
        if new.invite {
            let token = acts::invite(tx, &janua, account.id).await?;
            session.record_about(tx, &janua, account.id, &AccountInvited).await?;
            let told = mails::AccountInvite { name: account.name.clone(), token };
            mail::send(tx, &janua, new.email.as_str(), &told).await?;
        }
        Ok(account)
    })?;
    Ok(Json(PlatformUser::of(&janua, account).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UserPath {
    user_id: AccountId,
}

async fn find(janua: &Janua, id: AccountId) -> Result<Account> {
    Ok(Whole::find(&janua.db, id).await?.ok_or(NOT_FOUND)?.account)
}

async fn hold(tx: &mut Tx, id: AccountId) -> Result<HeldAccount> {
    Ok(Account::hold(tx, id).await?.ok_or(NOT_FOUND)?)
}

async fn get_user(
    State(janua): State<Janua>,
    _owner: PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<Json<PlatformUser>> {
    let account = find(&janua, path.user_id).await?;
    Ok(Json(PlatformUser::of(&janua, account).await?))
}

/// Fields that are left out stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UserChange {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: Option<String>,
    /// Needs a fresh proof of who the owner is. Links that were mailed before no longer work, and the old email is told.
    email: Option<Email>,
    /// Where it becomes true, a password that a sign-up chose is removed unless its email was confirmed: it may be a
    /// stranger's. The user chooses another one with "Forgot password".
    email_verified: Option<bool>,
    #[serde(flatten)]
    fresh: Fresh,
}

async fn update_user(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
    Json(change): Json<UserChange>,
) -> Result<Json<PlatformUser>> {
    let before = find(&janua, path.user_id).await?;
    let is_other = |email: &Email| before.email_key.as_deref() != Some(email.key());
    if change.email.as_ref().is_some_and(is_other) {
        change.fresh.check(&janua, &visitor, &session).await?;
    }
    let account = transact!(janua, async |tx| change.apply(tx, &janua, &session.by(), path.user_id).await)?;
    Ok(Json(PlatformUser::of(&janua, account).await?))
}

impl UserChange {
    async fn apply(&self, tx: &mut Tx, janua: &Janua, by: &By, id: AccountId) -> Result<Account> {
        let (held, now) = (hold(tx, id).await?, janua.clock.now());
        let mut fields = vec![];
        let email = self.email.as_ref().filter(|email| held.email_key.as_deref() != Some(email.key()));
        // Another email is proven by no one yet, unless the owner says so.
        let is_verified = self.email_verified.unwrap_or(held.email_verified && email.is_none());
        let email_key = email.map(|email| email.key().to_owned()).or_else(|| held.email_key.clone());
        let changed = Account { email_key, email_verified: is_verified, ..held.clone() };
        if runs_platform(janua, &held) && !runs_platform(janua, &changed) {
            acts::may_lose(tx, janua, by, &held).await?;
        }
        if let Some(name) = self.name.as_ref().map(|name| name.trim()).filter(|name| *name != held.name) {
            let renamed = Account { name: name.to_owned(), updated_at: now, ..held.clone() };
            renamed.save_profile(tx, &held.name).await?;
            fields.push("name");
        }
        if let Some(email) = email {
            if !Account::set_email(tx, id, email, now).await? {
                return Err(EMAIL_TAKEN.at("email", "email_taken", "belongs to another account"));
            }
            for purpose in [VERIFY_EMAIL, RESET_PASSWORD, ACCOUNT_INVITE, MAGIC_LINK] {
                once::void(tx, purpose, id, now).await?;
            }
            tenancy::events::record(tx, janua, by, Some(id), &EmailChanged).await?;
            let told = |act| OwnerActed { name: held.name.clone(), act };
            if let Some(before) = &held.email {
                mail::send(tx, janua, before, &told(OwnerAct::EmailChanged)).await?;
            }
            let now_opens = OwnerAct::EmailReplaces { is_verified };
            mail::send(tx, janua, email.as_str(), &told(now_opens)).await?;
            fields.push("email");
        }
        if is_verified != held.email_verified {
            if is_verified {
                acts::verify_email(tx, janua, id).await?;
            } else {
                Account::set_email_verified(tx, id, false, now).await?;
            }
            // That another email is not verified goes without saying.
            if self.email_verified.is_some() {
                fields.push("emailVerified");
            }
        }
        if !fields.is_empty() {
            tenancy::events::record(tx, janua, by, Some(id), &ProfileUpdated { fields }).await?;
            tx.notify(db::Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
        }
        Ok(Account::find(tx, id).await?.ok_or(NOT_FOUND)?)
    }
}

async fn delete_user(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<NoContent> {
    let (account, by) = (find(&janua, path.user_id).await?, session.by());
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    let told = OwnerActed { name: account.name.clone(), act: OwnerAct::Deleted };
    if by.actor == Some(account.id) {
        return Err(OWN_ACCOUNT.into());
    }
    account::delete(&janua, &by, &account, &told).await?;
    Ok(NoContent)
}

async fn disable_user(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::disable(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}

async fn enable_user(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::enable(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}

async fn reset_factors(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<NoContent> {
    find(&janua, path.user_id).await?;
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::reset_factors(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}

async fn require_password(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::require_password(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}

async fn resend_verification(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::resend_verification(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}

async fn end_sessions(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let held = hold(tx, path.user_id).await?;
        acts::end_sessions(tx, &janua, &session.by(), &held).await
    })?;
    Ok(NoContent)
}
