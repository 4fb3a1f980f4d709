"""One upload as the truss client makes it: boto3, parts of 8 MiB, 10 at once.

    put_s3.py ENDPOINT BUCKET KEY FILE      credentials are in the environment
"""
import os
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

endpoint, bucket, key, path = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=os.environ["KEY"],
                  aws_secret_access_key=os.environ["SECRET"], aws_session_token=os.environ.get("TOKEN"),
                  config=Config(s3={"addressing_style": "path"}))
s3.upload_file(path, bucket, key, Config=TransferConfig(multipart_chunksize=8 << 20, max_concurrency=10))
