//! An S3-compatible server in the test process: it keeps objects as files, and checks every signature.
use std::path::PathBuf;

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

use crate::config::Config;

const BUCKET: &str = "janua";
const ACCESS_KEY: &str = "AKIDTEST";
pub const SECRET_KEY: &str = "s3-hush-hush";

pub struct S3Server {
    pub url: String,
    folder: tempfile::TempDir,
}

impl S3Server {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { url, folder }
    }

    /// Settings that lead to it.
    pub fn config(&self) -> Config {
        Config {
            s3_url: Some(self.url.parse().unwrap()),
            s3_bucket: BUCKET.into(),
            s3_access_key: Some(ACCESS_KEY.to_owned().into()),
            s3_secret_key: Some(SECRET_KEY.to_owned().into()),
            ..Config::for_tests()
        }
    }

    /// The file of an object.
    pub fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }
}
