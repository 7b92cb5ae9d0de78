//! One's own account: the profile, what happened, everything that is kept, and the way out.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use db::{Reach, Tx};
use kernel::{
    Janua,
    clock::{Timestamp, is_time_zone},
    fault::{INVALID, Result},
    http::{Json, Key, MaybeJson, Page, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId, social::Identity},
    apps::UsedApp,
    enter::{ACCOUNT_TOPIC, AnySession, NotAdmitted, Session, ToAdmit, cookies},
    events::{
        self, About, By,
        audit::{AuditEntry, AuditFilter, AuditLog, AuditRequest, LogOf},
        happenings::MemberRemoved,
    },
    gone::{self, Gone},
    messages::mail::{self, Mail, Origin},
    orgs::{
        self, LAST_OWNER, Membership, OrgView,
        members::{self, Alone},
    },
    sessions::{self, sign_in::UserView},
    uploads::{self, Offer, PicturesOf, TOO_MANY_UPLOADS, Upload, Wish},
};

use crate::{
    BODY,
    events::{AccountDeleted, DataExported, ProfileUpdated},
    mails,
    oauth::{Consent, ConsentView},
    people::acts,
    proof::{self, Fresh},
    session::SessionView,
    trusted::{self, TrustedDeviceView},
};

pub fn routes() -> Routes {
    Routes::new("account")
        .body_limit(BODY)
        .patch("/user/profile", update_profile, "update display name, bio and similar")
        .post("/user/avatar/upload-url", create_avatar_upload, "presigned URL for avatar upload")
        .fails(&[TOO_MANY_UPLOADS])
        .get("/auth/audit-log", audit_log, "the user's audit events, newest first")
        .answers::<AuditLog>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .get("/auth/export", export, "export of everything stored about the user")
        .delete("/auth/me", delete_account, "delete the authenticated user's account")
        .answers_nothing(204)
        .fails(&proof::REFUSALS)
        .fails(&[LAST_OWNER])
}

/// The pictures of people, as uploads know them.
pub const AVATARS: PicturesOf =
    PicturesOf { kind: "avatar", show: |tx, janua, upload, url| Box::pin(show(tx, janua, upload, url)) };

/// Uploads of a person who goes come to nothing, and their picture is deleted.
pub const GONE: Gone =
    Gone::Account(|tx, janua, id| Box::pin(async move { uploads::subject_gone(tx, janua, &AVATARS.of(id)).await }));

async fn show(tx: &mut Tx, janua: &Janua, upload: &Upload, url: &str) -> db::Result<bool> {
    let Some(account) = upload.subject.id() else { return Ok(false) };
    if !Account::set_avatar(tx, account, url, janua.clock.now()).await? {
        return Ok(false);
    }
    let event = ProfileUpdated { fields: vec!["avatarUrl"] };
    events::record(tx, janua, &upload.by, Some(account), &event).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.to_string()).await?;
    Ok(true)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProfilePatch {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: Option<String>,
    /// Empty takes it away.
    #[schemars(length(max = 2000))]
    bio: Option<String>,
    accept_marketing: Option<bool>,
    /// As in `Europe/Zurich`: the time zone of mails and pages. Empty takes it away.
    #[schemars(length(max = 64))]
    time_zone: Option<String>,
}

async fn update_profile(
    State(janua): State<Janua>,
    AnySession(session): AnySession,
    Json(patch): Json<ProfilePatch>,
) -> Result<Json<UserView>> {
    let along = (janua.clone(), session.account().id, session.by(), patch);
    let changed = janua.carry(along, |tx, (janua, id, by, patch)| Box::pin(patch.apply(tx, janua, *id, by)));
    Ok(Json(UserView::seen_in(&session.living.session, &changed.await?, session.factors())))
}

impl ProfilePatch {
    async fn apply(&self, tx: &mut Tx, janua: &Janua, id: AccountId, by: &By) -> Result<Account> {
        // Held, so that of two changes at once neither undoes the other.
        let held = Account::hold(tx, id).await?.ok_or(kernel::fault::UNAUTHENTICATED)?;
        let (mut account, mut fields) = (held.clone(), vec![]);
        if let Some(name) = &self.name {
            account.name = name.trim().to_owned();
            fields.push("name");
        }
        if let Some(bio) = &self.bio {
            account.bio = Some(bio.clone()).filter(|bio| !bio.is_empty());
            fields.push("bio");
        }
        if let Some(accepts) = self.accept_marketing {
            account.accepts_marketing = accepts;
            fields.push("acceptMarketing");
        }
        if let Some(zone) = &self.time_zone {
            if !zone.is_empty() && !is_time_zone(zone) {
                return Err(INVALID.at("timeZone", "unknown_time_zone", "must be a time zone such as Europe/Zurich"));
            }
            account.time_zone = Some(zone.clone()).filter(|zone| !zone.is_empty());
            fields.push("timeZone");
        }
        account.updated_at = janua.clock.now();
        account.save_profile(tx, &held.name).await?;
        events::record(tx, janua, by, Some(id), &ProfileUpdated { fields }).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
        Ok(account)
    }
}

async fn create_avatar_upload(
    State(janua): State<Janua>,
    AnySession(session): AnySession,
    Json(wish): Json<Wish>,
) -> Result<Json<Offer>> {
    uploads::open(&janua, AVATARS.of(session.account().id), session.by(), &wish).await.map(Json)
}

async fn audit_log(
    State(janua): State<Janua>,
    session: Session,
    request: AuditRequest,
    page: Page,
) -> Result<Response> {
    request.answer(&janua, &page, LogOf::Person(session.account().id)).await
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    exported_at: Timestamp,
    user: UserView,
    accepts_marketing: bool,
    has_password: bool,
    recovery_codes_left: i64,
    trusted_devices: Vec<TrustedDeviceView>,
    orgs: Vec<OrgView>,
    /// The apps that the user signed in to.
    used_apps: Vec<UsedApp>,
    sessions: Vec<SessionView>,
    linked_identities: Vec<LinkedIdentity>,
    /// The user's consents.
    consents: Vec<ConsentView>,
    audit_events: Vec<AuditEntry>,
    /// What other features store for the user.
    #[serde(flatten)]
    more: serde_json::Map<String, serde_json::Value>,
}

/// The account at a provider, without the provider's tokens.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkedIdentity {
    provider: String,
    /// The user's id at the provider.
    subject: String,
    email: Option<String>,
    /// Whether the provider has verified the email.
    email_verified: bool,
    username: Option<String>,
    name: Option<String>,
    avatar_url: Option<String>,
    linked_at: Timestamp,
    last_used_at: Timestamp,
}

impl From<Identity> for LinkedIdentity {
    fn from(identity: Identity) -> Self {
        Self {
            provider: identity.provider,
            subject: identity.subject,
            email: identity.email,
            email_verified: identity.email_verified,
            username: identity.username,
            name: identity.name,
            avatar_url: identity.avatar_url,
            linked_at: identity.linked_at,
            last_used_at: identity.last_used_at,
        }
    }
}

const EXPORTED_CONSENTS: u32 = 1000;
/// How many audit events an export holds at the most; the audit log has them all, page by page.
const EXPORTED_EVENTS: u32 = 10_000;

async fn export(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    session: Session,
) -> Result<Json<Export>> {
    let (now, account) = (janua.clock.now(), session.account());
    transact!(janua, async |tx| Ok(session.record(tx, &janua, &DataExported).await?))?;
    let audit_events =
        AuditEntry::of_person(&janua.db, account.id, &AuditFilter::default(), &Key::newest(), EXPORTED_EVENTS)
            .await?;
    let found = sessions::StoredSession::of(&janua.db, account.id, now).await?;
    let linked = Identity::of(&janua.db, account.id).await?;
    let consents = Consent::page(&janua.db, account.id, &Key::newest(), EXPORTED_CONSENTS).await?;
    Ok(Json(Export {
        exported_at: now,
        user: UserView::of(account, session.factors()),
        recovery_codes_left: session.factors().recovery_left,
        trusted_devices: trusted::list(&janua, &visitor, account.id).await?,
        orgs: Membership::all_of(&janua.db, account.id).await?.iter().map(OrgView::of).collect(),
        used_apps: UsedApp::of(&janua.db, account.id).await?,
        accepts_marketing: account.accepts_marketing,
        has_password: account.password_hash.is_some(),
        sessions: found.into_iter().map(|found| SessionView::of(found, session.id())).collect(),
        linked_identities: linked.into_iter().map(Into::into).collect(),
        consents: consents.into_iter().map(Into::into).collect(),
        audit_events,
        more: tenancy::exports::of_account(&janua, account.id).await?,
    }))
}

/// The organizations that end with a person, because nobody else is in them. Refuses where others would be left without an
/// owner, and names those organizations.
async fn ends_with(tx: &mut Tx, account: AccountId) -> Result<Vec<Alone>> {
    let alone = members::owned_alone(tx, account).await?;
    let left: Vec<&str> = alone.iter().filter(|org| org.others > 0).map(|org| org.name.as_str()).collect();
    if left.is_empty() {
        return Ok(alone);
    }
    let named = format!("The account is the only owner of {}.", left.join(", "));
    Err(LAST_OWNER.because(named).with_extra("orgs", &left))
}

async fn delete_account(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<Response> {
    let account = session.account();
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    let by = session.by();
    let told = mails::AccountDeleted { name: account.name.clone(), origin: Origin::new(&by, janua.clock.now()) };
    delete(&janua, &by, account, &told).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    cookies::clear_session(&janua, response.headers_mut());
    Ok(response)
}

/// Deletes an account and what belongs to it, and tells the person. Another person cannot delete the last platform owner.
pub async fn delete(janua: &Janua, by: &By, account: &Account, told: &(dyn Mail + Sync)) -> Result<()> {
    let alone = transact!(janua, async |tx| {
        guard(tx, janua, by, account).await?;
        ends_with(tx, account.id).await
    })?;
    // What may be many rows goes some at a time.
    for org in alone {
        orgs::empty(janua, org.id).await?;
    }
    events::forget_past(&janua.db, account.id).await?;
    transact!(janua, async |tx| {
        guard(tx, janua, by, account).await?;
        let alone = ends_with(tx, account.id).await?;
        // What nobody else is in goes with its only member; the others are told who left.
        for org in alone {
            orgs::end(tx, janua, by, org.id).await?;
        }
        for org in orgs::of(tx, account.id).await? {
            let about = About::in_org(org).person(account.id);
            events::record(tx, janua, by, about, &MemberRemoved).await?;
            members::OrgMember::remove(tx, janua, org, account.id).await?;
        }
        sessions::end_all(tx, janua, by, account.id, None, "account_deleted").await?;
        events::record(tx, janua, by, Some(account.id), &AccountDeleted).await?;
        events::forget_person(tx, account.id).await?;
        if let Some(email) = &account.email {
            mail::send(tx, janua, email, told).await?;
        }
        gone::account(tx, janua, account.id).await?;
        Account::delete(tx, account.id).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
        Ok(())
    })
}

async fn guard(tx: &mut Tx, janua: &Janua, by: &By, account: &Account) -> Result<()> {
    if by.actor == Some(account.id) { Ok(()) } else { acts::may_lose(tx, janua, by, account).await }
}
