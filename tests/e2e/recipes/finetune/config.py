from truss.base import truss_config
from truss_train import definitions

BASE_IMAGE = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
MODEL_PATH = "/models/minilm"

training_runtime = definitions.Runtime(
    start_commands=["chmod +x ./run.sh", "./run.sh"],
    environment_variables={
        "MODEL": MODEL_PATH,
        "STEPS": "4",
        "HF_TOKEN": definitions.SecretReference(name="hf_access_token"),
    },
    cache_config=definitions.CacheConfig(enabled=True, require_cache_affinity=False),
    checkpointing_config=definitions.CheckpointingConfig(enabled=True),
)

training_job = definitions.TrainingJob(
    image=definitions.Image(base_image=BASE_IMAGE),
    compute=definitions.Compute(node_count=1, cpu_count=2, memory="4Gi"),
    runtime=training_runtime,
    name="minilm-sft",
    weights=[truss_config.WeightsSource(source="hf://sentence-transformers/all-MiniLM-L6-v2@main", mount_location=MODEL_PATH)],
)

training_project = definitions.TrainingProject(name="minilm-topics", job=training_job)
