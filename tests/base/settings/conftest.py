from tests.support.clean_home import agent, clean_environment, project, write

__all__ = ["agent", "clean_environment", "project", "write"]
