import pytest

from mlmodelscope.core.variables import RECORDED_VARIABLES, recorded_variables


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_VISIBLE_DEVICES",
        "GOMP_CPU_AFFINITY",
        "KMP_AFFINITY",
        "LANG",
        "LD_PRELOAD",
        "MALLOC_ARENA_MAX",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "ONEDNN_VERBOSE",
        "OPENBLAS_NUM_THREADS",
        "ORT_DISABLE_TELEMETRY",
        "PYTHONHASHSEED",
        "TF_ENABLE_ONEDNN_OPTS",
        "XNNPACK_FLAGS",
    ],
)
def test_what_decides_results_is_kept(name):
    assert recorded_variables({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "HOME",
        "ORT_API_KEY",
        "PATH",
        "SSH_AUTH_SOCK",
        "TF_CLI_CONFIG_FILE",
        "TF_HTTP_USERNAME",
        "TF_TOKEN_app_terraform_io",
        "TF_VAR_database",
        "USER",
        "omp_num_threads",
    ],
)
def test_what_does_not_or_is_secret_is_left_out(name):
    assert recorded_variables({name: "x"}) == {}


def test_the_result_is_sorted_and_the_list_too():
    assert list(recorded_variables({"OMP_NUM_THREADS": "2", "LANG": "C"})) == ["LANG", "OMP_NUM_THREADS"]
    assert list(RECORDED_VARIABLES) == sorted(RECORDED_VARIABLES)
