//! Who asks for a person's consent: an app of ours, a client that describes itself at its own address, or one that
//! registered itself.
use db::{Db, Tx, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result};
use tenancy::{
    accounts::AccountId,
    apps::{
        Application, ApplicationId, redirects,
        scopes::{DeclaredScopes, OwnResource, Scopes},
    },
    enter::Visitor,
    machines::{Machine, MachineId, State},
    orgs::{Membership, OrgId},
};
use url::{Position, Url};

use super::documents;

pub struct Client {
    /// An app's id, an https address, or an id we gave.
    pub id: String,
    /// What it calls itself; nobody has checked that.
    pub name: String,
    /// Whose word its description is, where it stands at an address.
    pub host: Option<String>,
    pub app: Option<Owned>,
    redirect_uris: Vec<String>,
}

/// A server that tokens can be had for.
pub struct Target {
    /// As the client wrote it.
    pub resource: String,
    /// What its app is called, where one answers for it.
    pub app_name: Option<String>,
    /// Whose it is. Nobody answers for a server on loopback that no app lists.
    org_id: Option<OrgId>,
    /// The scopes that its app declares.
    declared: DeclaredScopes,
    is_loopback: bool,
}

impl Target {
    /// Whether clients may ask for this scope there. On loopback, where no app says what its server knows, for any: a
    /// developer's first server works before anything is declared.
    pub fn knows(&self, scope: &str) -> bool {
        self.declared.find(scope).is_some() || (self.is_loopback && self.declared.0.is_empty())
    }

    /// Those of the scopes that mean something here, each with what this server's own app says of it.
    pub fn of_scopes<'a>(&'a self, scopes: &'a Scopes) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let describe = |name: &str| self.declared.find(name).map(|declared| declared.description.as_str());
        let here = scopes.declared().iter().filter(|name| self.knows(name));
        here.map(move |name| (name.as_str(), describe(name)))
    }

    /// Why one token cannot be for all of them with these scopes; nothing when it can. Each organization decides about its
    /// own servers alone: no scope reaches those of another that does not declare it, and nobody answers for what listens on
    /// loopback.
    pub fn conflict(all: &[Self], scope: &str) -> Option<&'static str> {
        if all.len() > 1 && all.iter().any(|target| target.is_loopback) {
            return Some("A resource on loopback cannot be combined with other resources.");
        }
        let is_of_one = all.windows(2).all(|pair| pair[0].org_id == pair[1].org_id);
        let is_shared = |name: &str| {
            let known = all.iter().filter(|target| target.knows(name)).count();
            known == 0 || known == all.len()
        };
        if is_of_one || scope.split(' ').all(is_shared) {
            return None;
        }
        Some("Resources of different organizations can be combined only with scopes that each of them declares.")
    }
}

/// What an app has that other clients have not.
pub struct Owned {
    pub id: ApplicationId,
    pub org_id: OrgId,
    /// How it looks where people sign in to it.
    pub logo_url: Option<String>,
    pub primary_color: Option<String>,
    pub(super) require_pkce: bool,
    allowed_origins: Vec<String>,
    declared_scopes: DeclaredScopes,
}

/// How far one may go to find out who a client is.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    /// What is known already, however old: for what goes on after somebody began.
    Known,
    /// Its own address is asked, at the cost of who sent somebody here.
    Asked(&'a Visitor),
}

impl Client {
    pub async fn find(janua: &Janua, reach: Reach<'_>, id: &str) -> Result<Option<Self>> {
        if let Ok(app) = id.parse::<ApplicationId>() {
            return match Application::find(&janua.db, app).await? {
                Some(application) => Ok(Some(application.into())),
                None => Self::of_machine(janua, id).await,
            };
        }
        if id.starts_with("https://") {
            return documents::read(janua, reach, id).await;
        }
        let known = Described::find(&janua.db, id).await?.filter(|known| known.read_until.is_none());
        Ok(known.map(Described::client))
    }

    /// A framework agent that users can authorize.
    async fn of_machine(janua: &Janua, id: &str) -> Result<Option<Self>> {
        let Ok(id) = id.parse::<MachineId>() else { return Ok(None) };
        let machine = Machine::find(&janua.db, id).await?.filter(Machine::is_client);
        let machine = machine.filter(|machine| machine.state_at(janua.clock.now()) == State::Active);
        Ok(machine.map(|machine| Self {
            id: machine.id.to_string(),
            name: shown_name(&machine.name),
            host: None,
            app: None,
            redirect_uris: machine.redirect_uris,
        }))
    }

    pub fn may_send_to(&self, redirect_uri: &str) -> bool {
        redirects::is_registered(&self.redirect_uris, redirect_uri)
    }

    /// Where people may be sent after they signed out: back where they came in, or to a front page of the app.
    pub fn may_leave_to(&self, uri: &str) -> bool {
        let origins = self.app.as_ref().map(|app| app.allowed_origins.as_slice()).unwrap_or_default();
        let is_front = origins.iter().any(|origin| uri.strip_suffix('/').unwrap_or(uri) == origin);
        is_front || self.may_send_to(uri)
    }

    /// Whether only the app's own program listens at this redirect URI on loopback: its port is registered to the letter.
    /// Where any port will do, any program on the machine can be the client.
    pub fn has_registered_port(&self, redirect_uri: &str) -> bool {
        let is_listed = || self.redirect_uris.iter().any(|known| known == redirect_uri);
        self.app.is_some() && redirects::names_loopback_port(redirect_uri) && is_listed()
    }

    /// The server that tokens are wanted for: on a domain that some app has proven to be its own, or, while developing, on
    /// loopback, which every client may ask for and the person decides upon.
    pub async fn target(&self, janua: &Janua, resource: &str) -> Result<Option<Target>> {
        if let Some(own) = OwnResource::find(janua, resource) {
            return Ok(Some(Target {
                resource: resource.to_owned(),
                app_name: Some(own.name.to_owned()),
                org_id: None,
                declared: own.declared_scopes(),
                is_loopback: false,
            }));
        }
        let Some(url) = target(resource) else { return Ok(None) };
        if redirects::is_loopback(&url) {
            let origin = url.origin().ascii_serialization();
            let own = self.app.as_ref().filter(|owned| owned.allowed_origins.contains(&origin));
            return Ok(Some(Target {
                resource: resource.to_owned(),
                app_name: own.map(|_| self.name.clone()),
                org_id: own.map(|owned| owned.org_id),
                declared: own.map(|owned| owned.declared_scopes.clone()).unwrap_or_default(),
                is_loopback: true,
            }));
        }
        let Some(id) = Application::of_domain(&janua.db, url.host_str().unwrap_or_default()).await? else {
            return Ok(None);
        };
        Ok(Application::find(&janua.db, id).await?.map(|application| Target {
            resource: resource.to_owned(),
            app_name: Some(shown_name(&application.name)),
            org_id: Some(application.org_id),
            declared: application.declared_scopes,
            is_loopback: false,
        }))
    }

    /// Whether the person belongs to the organization behind it, which needs no consent of theirs; unless it wants tokens
    /// for a server of others.
    pub async fn is_of_their_own(&self, db: &Db, account: AccountId, targets: &[Target]) -> db::Result<bool> {
        match &self.app {
            Some(owned) if targets.iter().all(|target| target.org_id == Some(owned.org_id)) => {
                Ok(Membership::of(db, owned.org_id, account).await?.is_some())
            }
            _ => Ok(false),
        }
    }
}

pub use tenancy::apps::target;

impl From<Application> for Client {
    fn from(application: Application) -> Self {
        Self {
            id: application.id.to_string(),
            name: application.name,
            host: None,
            app: Some(Owned {
                id: application.id,
                org_id: application.org_id,
                logo_url: application.logo_url,
                primary_color: application.primary_color,
                require_pkce: application.require_pkce,
                allowed_origins: application.allowed_origins,
                declared_scopes: application.declared_scopes,
            }),
            redirect_uris: application.redirect_uris,
        }
    }
}

/// What a client calls itself, without what would make it look like something else.
pub fn shown_name(name: &str) -> String {
    let is_plain = |c: &char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    name.chars().filter(is_plain).take(200).collect()
}

/// A client that is no app, as it is kept.
pub struct Described {
    pub id: String,
    pub name: String,
    pub redirect_uris: Vec<String>,
    pub created_at: Timestamp,
    /// Until when what was read at its address is believed; nothing for one that registered itself.
    pub read_until: Option<Timestamp>,
}
row!(Described { id, name, redirect_uris, created_at, read_until });

impl Described {
    pub async fn find(db: &Db, id: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT id, name, redirect_uris, created_at, read_until FROM oauth_client WHERE id = $1";
        db.opt(sql, params![id]).await
    }

    /// New, or as it describes itself now.
    pub async fn keep(&self, db: &Db) -> db::Result<()> {
        db.exec(
            "INSERT INTO oauth_client (id, name, redirect_uris, created_at, read_until) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (id) DO UPDATE SET name = $2, redirect_uris = $3, read_until = $5",
            params![&self.id, &self.name, &self.redirect_uris, self.created_at, self.read_until],
        )
        .await?;
        Ok(())
    }

    /// Somebody let it in: it is not forgotten.
    pub async fn note_use(tx: &mut Tx, id: &str, now: Timestamp) -> db::Result<()> {
        tx.exec("UPDATE oauth_client SET used_at = $2 WHERE id = $1", params![id, now]).await?;
        Ok(())
    }

    pub fn client(self) -> Client {
        let address = Url::parse(&self.id).ok().filter(|_| self.read_until.is_some());
        let host = address.map(|url| url[Position::BeforeHost..Position::AfterPort].to_owned());
        Client { id: self.id, name: self.name, host, app: None, redirect_uris: self.redirect_uris }
    }
}
