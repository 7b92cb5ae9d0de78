//! Who deploys: an admin, a secret key of the app, or a CI run that proved its repository and branch.
use axum::{extract::FromRequestParts, http::request::Parts};
use db::Tx;
use kernel::{
    Janua,
    fault::{Code, Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, Path, bearer, may_answer, requires},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::AccountId,
    apps::{AppKeyId, Application, ApplicationId},
    enter::{Deployer, NotAdmitted},
    events::By,
    orgs::Org,
};

use super::model::{Commit, SourceKind, Target};
use crate::codehost::{RUN_PREFIX, Run};

const NOT_THIS_BRANCH: Code =
    Code::new(403, "branch_not_production", "This branch deploys previews alone. Production is another branch.");

pub enum DeployCaller {
    Deployer(Box<Deployer>),
    Run { application: Box<Application>, run: Box<Run>, by: By },
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppPath {
    app_id: ApplicationId,
}

impl DeployCaller {
    pub fn application(&self) -> &Application {
        match self {
            Self::Deployer(caller) => &caller.application,
            Self::Run { application, .. } => application,
        }
    }

    pub fn account(&self) -> Option<AccountId> {
        match self {
            Self::Deployer(caller) => caller.account(),
            Self::Run { .. } => None,
        }
    }

    pub fn key(&self) -> Option<AppKeyId> {
        match self {
            Self::Deployer(caller) => caller.key(),
            Self::Run { .. } => None,
        }
    }

    pub fn by(&self) -> By {
        match self {
            Self::Deployer(caller) => caller.by(),
            Self::Run { by, .. } => by.clone(),
        }
    }

    /// Locks the app and checks the caller again.
    pub async fn hold(&self, tx: &mut Tx, janua: &Janua) -> Result<Application> {
        match self {
            Self::Deployer(caller) => caller.hold(tx).await,
            Self::Run { application, run, .. } => {
                Org::hold(tx, application.org_id).await?;
                let application = Application::hold(tx, application.id).await?.ok_or(NOT_FOUND)?;
                if run.counts(tx, janua, &application).await? { Ok(application) } else { Err(UNAUTHENTICATED.into()) }
            }
        }
    }

    /// Where it goes. A CI run has the target of its branch.
    pub fn target(&self, wanted: Option<Target>) -> Result<Target> {
        match self {
            Self::Deployer(_) => Ok(wanted.unwrap_or(Target::Production)),
            Self::Run { run, .. } => match (run.target(), wanted) {
                (Target::Preview, Some(Target::Production)) => Err(NOT_THIS_BRANCH.into()),
                (target, wanted) => Ok(wanted.unwrap_or(target)),
            },
        }
    }

    /// What it was built from. A CI run cannot say that it is another branch or commit.
    pub fn commit(&self, said: Option<Commit>) -> Option<Commit> {
        match self {
            Self::Deployer(_) => said,
            Self::Run { run, .. } => Some(Commit {
                sha: Some(run.sha().to_owned()),
                branch: Some(run.branch().to_owned()),
                message: said.and_then(|said| said.message),
                author: None,
                url: None,
            }),
        }
    }

    /// The kind of source, the installation and the repository.
    pub fn source(&self) -> (SourceKind, Option<String>, Option<String>) {
        match self {
            Self::Deployer(_) => (SourceKind::Upload, None, None),
            Self::Run { run, .. } => {
                (SourceKind::Codehost, Some(run.installation().to_string()), Some(run.repository().to_owned()))
            }
        }
    }
}

impl FromRequestParts<Janua> for DeployCaller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let token = bearer(&parts.headers).filter(|token| token.starts_with(RUN_PREFIX)).map(str::to_owned);
        let Some(token) = token else {
            return Deployer::from_request_parts(parts, janua).await.map(Box::new).map(Self::Deployer);
        };
        let run = Run::find(janua, &token.into()).await?.ok_or(UNAUTHENTICATED)?;
        let Path(AppPath { app_id }) = Path::from_request_parts(parts, janua).await?;
        if run.app() != app_id {
            return Err(NOT_FOUND.into());
        }
        let application = Application::find(&janua.db, app_id).await?.ok_or(NOT_FOUND)?;
        let NotAdmitted(visitor) = NotAdmitted::from_request_parts(parts, janua).await?;
        let by = By { app: Some(app_id), ..visitor.by };
        Ok(Self::Run { application: Box::new(application), run: Box::new(run), by })
    }
}

impl OperationInput for DeployCaller {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Deployer::operation_input(ctx, operation);
        requires(operation, &["deployToken"]);
        may_answer(operation, &[NOT_THIS_BRANCH]);
    }
}
