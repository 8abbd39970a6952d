"""Sessions and credentials as arguments: used, hidden, and sent to workers only if requested."""

import pickle

import boto3
import pytest

import ddbio
from ddbio.jobs.clients import dynamodb_spec, s3_spec
from ddbio.options import ConnectionOptions, parse_options
from ddbio.testing import FakeDynamoDB

KEYS = {"access_key_id": "AKIDGIVEN", "secret_access_key": "tell-nobody", "session_token": "nor-this"}
GIVEN = ddbio.Credentials(**KEYS)


def options_of(**values):
    """Return checked options."""
    return parse_options(ConnectionOptions, values)


def keys_of(client):
    """Return the keys with which a client signs."""
    frozen = client._request_signer._credentials.get_frozen_credentials()
    return dict(zip(KEYS, frozen[:3], strict=True))


@pytest.mark.parametrize(
    "credentials",
    [
        GIVEN,
        KEYS,
        boto3.Session("AKIDGIVEN", "tell-nobody", "nor-this").get_credentials(),
        boto3.Session("AKIDGIVEN", "tell-nobody", "nor-this").get_credentials().get_frozen_credentials(),
    ],
    ids=["Credentials", "mapping", "botocore", "frozen"],
)
def test_credentials_sign_every_request_and_are_pickled(credentials):
    """Both services use them, also in a process that received the description."""
    options = options_of(credentials=credentials, region="us-east-1")
    for spec, service in ((dynamodb_spec(options), "dynamodb"), (s3_spec(options), "s3")):
        assert keys_of(pickle.loads(pickle.dumps(spec)).client(service)) == KEYS


def test_secrets_are_in_no_text():
    """Neither options nor descriptions nor errors contain the secrets."""
    options = options_of(credentials=GIVEN)
    with pytest.raises(ddbio.OptionError) as caught:
        options_of(credentials={**KEYS, "secret": "tell-nobody"})
    for text in (repr(options), repr(dynamodb_spec(options)), repr(GIVEN), str(caught.value)):
        assert "tell-nobody" not in text
        assert "nor-this" not in text


def test_a_session_is_used_unchanged():
    """Its credentials and region are those of the clients. An option overrides the region."""
    session = boto3.Session(*KEYS.values(), region_name="eu-west-3")
    client = dynamodb_spec(options_of(session=session)).client("dynamodb")
    assert (keys_of(client), client.meta.region_name) == (KEYS, "eu-west-3")
    other = dynamodb_spec(options_of(session=session, region="us-west-2")).client("dynamodb")
    assert (keys_of(other), other.meta.region_name) == (KEYS, "us-west-2")


def test_a_session_stays_in_its_process():
    """Pickling it is an error with the alternatives."""
    with pytest.raises(ddbio.OptionError, match="or credentials, which are sent"):
        pickle.dumps(dynamodb_spec(options_of(session=boto3.Session(*KEYS.values()))))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"session": "mine"}, "option 'session': give a boto3.Session"),
        ({"profile": "p", "credentials": GIVEN}, "give profile or credentials, not both"),
        ({"session": boto3.Session(), "credentials": GIVEN}, "give session or credentials, not both"),
    ],
)
def test_one_identity_is_given(values, message):
    """Two identities are contradictory, and a session must be one of boto3."""
    with pytest.raises(ddbio.OptionError) as caught:
        options_of(**values)
    assert message in str(caught.value)


def test_a_table_is_read_by_a_session():
    """The public functions accept a session."""
    with FakeDynamoDB() as fake:
        fake.load("orders", b'{"Item":{"pk":{"S":"a"}}}\n', "pk:S")
        session = boto3.Session(*KEYS.values(), region_name="us-east-1")
        assert ddbio.read_table("orders", session=session, endpoint_url=fake.endpoint_url).num_rows == 1
