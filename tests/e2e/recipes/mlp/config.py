from truss_train import definitions

project_name = "mlp-from-scratch"

training_runtime = definitions.Runtime(
    start_commands=["/bin/sh -c 'chmod +x ./run.sh && ./run.sh'"],
    environment_variables={"EPOCHS": "3"},
    cache_config=definitions.CacheConfig(enabled=True),
    checkpointing_config=definitions.CheckpointingConfig(enabled=True),
)

training_job = definitions.TrainingJob(
    image=definitions.Image(base_image="pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"),
    compute=definitions.Compute(cpu_count=1, memory="2Gi"),
    runtime=training_runtime,
)

first_project_with_job = definitions.TrainingProject(name=project_name, job=training_job)
