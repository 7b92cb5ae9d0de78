//! Apps: made, shown, changed, given up.
use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{FORBIDDEN, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    accounts::AccountId,
    apps::{
        Application, ApplicationId, Reached, redirects,
        scopes::{self, DeclaredScope, DeclaredScopes},
        slugs::{self, SLUG_TAKEN},
    },
    enter::{
        self, Admin, InApp, Member, Session,
        builders::{self, BUILDERS_ONLY},
    },
    events::{About, happenings::AppDeleted},
    orgs::{Membership, OrgId, Role},
    quotas::QUOTA_EXCEEDED,
    records,
};

use crate::events::{AppCreated, AppUpdated};

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps", list_apps, "the apps of the user's organizations, newest first")
        .post("/apps", create_app, "create an app")
        .fails(&[SLUG_TAKEN, NOT_FOUND, FORBIDDEN, BUILDERS_ONLY, QUOTA_EXCEEDED])
        .get("/apps/{appId}", get_app, "app details")
        .patch("/apps/{appId}", update_app, "update settings")
        .fails(&[SLUG_TAKEN])
        .delete("/apps/{appId}", delete_app, "delete the app")
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppView {
    id: ApplicationId,
    org_id: OrgId,
    /// The user who created it.
    owner_id: Option<AccountId>,
    name: String,
    slug: String,
    /// Exact redirect URIs. On loopback any port is allowed.
    redirect_uris: Vec<String>,
    /// Whose pages may call with this app's key.
    allowed_origins: Vec<String>,
    settings: Map<String, Value>,
    /// Branding of the sign-in pages.
    logo_url: Option<String>,
    /// As in `#1d4ed8`.
    primary_color: Option<String>,
    /// The scopes of the app's own servers.
    scopes: Vec<DeclaredScope>,
    /// Whether clients of the app need PKCE. Without it, codes are redeemed with a secret key alone.
    require_pkce: bool,
    /// The caller's role in its organization.
    role: Role,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl AppView {
    fn of(application: Application, role: Role) -> Self {
        Self {
            id: application.id,
            org_id: application.org_id,
            owner_id: application.owner_id,
            name: application.name,
            slug: application.slug,
            redirect_uris: application.redirect_uris,
            allowed_origins: application.allowed_origins,
            settings: records::of(&application.settings),
            logo_url: application.logo_url,
            primary_color: application.primary_color,
            scopes: application.declared_scopes.0,
            require_pkce: application.require_pkce,
            role,
            created_at: application.created_at,
            updated_at: application.updated_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Apps {
    apps: Vec<AppView>,
    next_cursor: Option<String>,
}

async fn list_apps(State(janua): State<Janua>, session: Session, page: Page) -> Result<Json<Apps>> {
    let account = session.account().id;
    let fetch = async |below, most| Application::page(&janua.db, account, &below, most).await;
    let key = |found: &Reached| Key { at: found.application.created_at, id: found.application.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "apps", account, fetch, key).await?;
    let apps = rows.into_iter().map(|found| AppView::of(found.application, found.role)).collect();
    Ok(Json(Apps { apps, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewApp {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: String,
    /// The app's part of a host name: letters, digits and single hyphens, and no reserved word. Left out: made from the
    /// name.
    #[schemars(length(max = 48), regex(pattern = slugs::PATTERN))]
    slug: Option<String>,
    /// Default: the organization of the session, or one of the user's own, which is created if there is none.
    org_id: Option<OrgId>,
    #[serde(default)]
    #[schemars(length(max = 50))]
    redirect_uris: Vec<String>,
    #[serde(default)]
    #[schemars(length(max = 50))]
    allowed_origins: Vec<String>,
    /// The scopes of the app's own servers, requested together with `resource`.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<DeclaredScope>>,
    /// Default: true. `false` allows clients with a secret key to omit PKCE.
    require_pkce: Option<bool>,
}

async fn create_app(State(janua): State<Janua>, session: Session, Json(new): Json<NewApp>) -> Result<Json<AppView>> {
    builders::refuse_others(&janua, &session).await?;
    let now = janua.clock.now();
    redirects::check(&new.redirect_uris, &new.allowed_origins)?;
    scopes::check(new.scopes.as_deref().unwrap_or_default())?;
    new.slug.as_deref().map(slugs::check).transpose()?;
    let allowed_origins = redirects::origins(&new.allowed_origins);
    if let Some(org) = new.org_id {
        // Before the transaction, which may answer what was answered to the same request before.
        may_build_in(
            Membership::all_of(&janua.db, session.account().id).await?.into_iter().find(|one| one.org.id == org),
        )?;
    }
    let (application, role) = transact!(janua, async |tx| {
        let Membership { org, role } = home(tx, &janua, &session, new.org_id).await?;
        let mut application = Application {
            id: ApplicationId::new(&janua.entropy, now),
            org_id: org.id,
            owner_id: Some(session.account().id),
            name: new.name.trim().to_owned(),
            slug: new.slug.clone().unwrap_or_else(|| slugs::made_from(&janua, &new.name)),
            redirect_uris: new.redirect_uris.clone(),
            allowed_origins: allowed_origins.clone(),
            settings: Value::Object(Map::new()),
            logo_url: None,
            primary_color: None,
            declared_scopes: DeclaredScopes(new.scopes.clone().unwrap_or_default()),
            require_pkce: new.require_pkce.unwrap_or(true),
            created_at: now,
            updated_at: now,
        };
        if !application.insert(tx, &janua).await? {
            application.slug = slugs::slug_near(&janua, &application.slug);
            if new.slug.is_some() || !application.insert(tx, &janua).await? {
                return Err(SLUG_TAKEN.into());
            }
        }
        session.record_about(tx, &janua, About::app(&application), &AppCreated).await?;
        Ok((application, role))
    })?;
    Ok(Json(AppView::of(application, role)))
}

fn may_build_in(membership: Option<Membership>) -> Result<Membership> {
    let membership = membership.ok_or(NOT_FOUND)?;
    if membership.role < Role::Admin { Err(FORBIDDEN.into()) } else { Ok(membership) }
}

/// The organization a new app belongs to.
async fn home(tx: &mut Tx, janua: &Janua, session: &Session, wanted: Option<OrgId>) -> Result<Membership> {
    let account = session.account();
    if let Some(org) = wanted {
        return may_build_in(Membership::of(&mut *tx, org, account.id).await?);
    }
    // Two first apps at once must not make two organizations.
    tenancy::accounts::Account::hold(tx, account.id).await?;
    let active = session.org().map(|membership| membership.org.id);
    if let Some(found) = Membership::may_build(tx, account.id, active).await? {
        return Ok(found);
    }
    enter::create_own_org(tx, janua, session).await
}

async fn get_app(caller: InApp<Member>) -> Json<AppView> {
    Json(AppView::of(caller.application, caller.role))
}

/// Omitted fields stay unchanged.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppChange {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: Option<String>,
    #[schemars(regex(pattern = "^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$"))]
    slug: Option<String>,
    #[schemars(length(max = 50))]
    redirect_uris: Option<Vec<String>>,
    #[schemars(length(max = 50))]
    allowed_origins: Option<Vec<String>>,
    /// Merged key by key; `null` deletes a key.
    settings: Option<Map<String, Value>>,
    /// All that clients may ask for at the app's own servers, together with `resource`.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<DeclaredScope>>,
    /// `false` allows clients with a secret key to omit PKCE. Public clients always need it.
    require_pkce: Option<bool>,
    /// Branding of the sign-in pages.
    branding: Option<Branding>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Branding {
    /// As in `#1d4ed8`; `null` for none.
    #[schemars(regex(pattern = "^#[0-9a-fA-F]{6}$"))]
    primary_color: Option<String>,
}

async fn update_app(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(change): Json<AppChange>,
) -> Result<Json<AppView>> {
    let none = vec![];
    let (uris, origins) = (change.redirect_uris.as_ref(), change.allowed_origins.as_ref());
    redirects::check(uris.unwrap_or(&none), origins.unwrap_or(&none))?;
    scopes::check(change.scopes.as_deref().unwrap_or_default())?;
    let application = transact!(janua, async |tx| {
        let mut application = caller.hold(tx).await?;
        let mut fields = vec![];
        if let Some(name) = &change.name {
            application.name = name.trim().to_owned();
            fields.push("name");
        }
        if let Some(slug) = &change.slug {
            // One from before the rules may stay until it is changed.
            if *slug != application.slug {
                slugs::check(slug)?;
            }
            application.slug.clone_from(slug);
            fields.push("slug");
        }
        if let Some(uris) = &change.redirect_uris {
            application.redirect_uris.clone_from(uris);
            fields.push("redirectUris");
        }
        if let Some(origins) = &change.allowed_origins {
            application.allowed_origins = redirects::origins(origins);
            fields.push("allowedOrigins");
        }
        if let Some(settings) = &change.settings {
            let merged = records::merge("settings", records::of(&application.settings), settings)?;
            application.settings = Value::Object(merged);
            fields.push("settings");
        }
        if let Some(scopes) = &change.scopes {
            application.declared_scopes = DeclaredScopes(scopes.clone());
            fields.push("scopes");
        }
        if let Some(require_pkce) = change.require_pkce {
            application.require_pkce = require_pkce;
            fields.push("requirePkce");
        }
        if let Some(branding) = &change.branding {
            application.primary_color = branding.primary_color.as_ref().map(|color| color.to_lowercase());
            fields.push("branding");
        }
        application.updated_at = janua.clock.now();
        if !application.save(tx, caller.session.account().id).await? {
            return Err(SLUG_TAKEN.into());
        }
        let event = AppUpdated { fields };
        caller.record(tx, &janua, &event).await?;
        Ok(application)
    })?;
    Ok(Json(AppView::of(application, caller.role)))
}

async fn delete_app(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<NoContent> {
    let application = transact!(janua, async |tx| caller.hold(tx).await)?;
    Application::empty(&janua, application.id).await?;
    transact!(janua, async |tx| {
        let application = caller.hold(tx).await?;
        application.delete(tx, &janua, caller.session.account().id).await?;
        Ok(caller.record(tx, &janua, &AppDeleted).await?)
    })?;
    Ok(NoContent)
}
