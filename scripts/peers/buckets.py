"""Puts a file at a presigned URL, and looks at the bucket with boto3.

Arguments: the server of the bucket, its name, the access key, the secret key, and then either
`put URL CONTENT_TYPE FILE` or `get KEY` (prints the length, the type and the digest of an object).
"""
import hashlib
import sys
import urllib.request

import boto3
from botocore.config import Config

endpoint, bucket, access, secret, what, *rest = sys.argv[1:]
if what == "put":
    url, content_type, file = rest
    request = urllib.request.Request(url, data=open(file, "rb").read(), method="PUT")
    request.add_header("Content-Type", content_type)
    print(urllib.request.urlopen(request).status)
else:
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=access, aws_secret_access_key=secret, region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    found = client.get_object(Bucket=bucket, Key=rest[0])
    body = found["Body"].read()
    print(len(body), found["ContentType"], hashlib.sha256(body).hexdigest())
